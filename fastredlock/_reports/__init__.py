"""What callers read: votes, counters, the health of the masters, log lines."""
