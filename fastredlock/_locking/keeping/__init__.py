"""To keep leases: when to renew, who does it, and what is lost."""
