"""From settings to results: what a run trains on, its program, its loop, its evaluation."""
