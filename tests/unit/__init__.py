"""Tests of one source file each: `test_<source>.py`."""
