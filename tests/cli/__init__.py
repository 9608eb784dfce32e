"""The commands, as processes: with signals, terminals, and servers of all kinds."""
