"""The saddle command: verb.py declares what a verb is, and each other file has the verbs of a theme."""
