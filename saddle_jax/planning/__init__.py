"""Whether a run fits devices that need not be here: its memory, its work, what travels."""
