"""The options of a FastRedlock: each is checked, before any I/O."""
