"""Measure fastredlock beside a floor in C and other libraries; see README.md."""
