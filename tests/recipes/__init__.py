"""The programs of docs/recipes, as processes that are killed, stopped and cut off."""
