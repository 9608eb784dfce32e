"""Taking, holding, extending and releasing: everything between a call and the core."""
