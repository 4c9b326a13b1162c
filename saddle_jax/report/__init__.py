"""Pictures and tables: they read what others made, and never train."""
