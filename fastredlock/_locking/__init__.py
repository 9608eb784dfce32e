"""Taking, holding, extending and releasing: between a call and the core."""
