"""The algorithms: one short file each, in the paper's words and line numbers."""
