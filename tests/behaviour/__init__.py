"""Calls of the package against real masters, over every driver."""
