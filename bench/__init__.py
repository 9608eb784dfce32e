"""Measure fastredlock against a floor in C and against its peers; see README.md."""
