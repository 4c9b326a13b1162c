"""The folders of runs: their files, checkpoints and metrics, and tables of many runs."""
