"""The commands of `fastredlock`, a file for each; what they share in status, setup."""
