"""The words, checks and errors that every room uses, and how files are written."""
