"""What the engine does when servers, networks and callers misbehave."""
