"""Servers, networks, processes and callers that misbehave."""
