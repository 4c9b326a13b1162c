"""The saddle command: verb.py defines verbs, and each other file has the verbs of one topic."""
