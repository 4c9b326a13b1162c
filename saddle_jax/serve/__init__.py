"""A local web page of all runs in a folder, updated during training."""
