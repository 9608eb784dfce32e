"""Endpoints whose server may be replaced behind one name: Sentinel."""
