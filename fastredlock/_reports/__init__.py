"""Reports for callers: votes, counters, the health of the masters, log lines."""
