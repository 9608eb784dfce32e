"""Parts that several of the replacements share."""
