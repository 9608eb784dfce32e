"""What a FastRedlock was given: each option checked, before any I/O."""
