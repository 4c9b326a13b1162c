"""The paper as data: its settings, its printed figures, and how those come about."""
