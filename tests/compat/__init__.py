"""What replaces other libraries, beside them; a package, so that names never clash."""
