"""What a caller sees, against real masters. A package: its names clash with nobody's."""
