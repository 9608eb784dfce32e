"""Programs for those who work on fastredlock; none of them is installed."""
