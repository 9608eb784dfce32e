"""What a caller sees, against real masters; a package, so that names never clash."""
