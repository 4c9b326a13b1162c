"""A run: its settings, its parts, its loop, its folder."""
