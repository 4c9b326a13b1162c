"""The settings of a run as text and numbers."""
