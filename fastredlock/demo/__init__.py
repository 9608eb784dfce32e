"""`fastredlock demo`: lost updates without the lock, none with it; see `play`."""
