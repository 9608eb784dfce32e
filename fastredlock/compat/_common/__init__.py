"""What several of the replacements share."""
