"""A local page over all runs of a folder, kept up to date while they are trained."""
