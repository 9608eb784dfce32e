"""Masters as people set them up: rights, TLS, restarts, wrong setups; LocalMasters."""
