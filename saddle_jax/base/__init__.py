"""Types, argument checks, errors and file handling that all other subpackages use."""
