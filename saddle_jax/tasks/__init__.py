"""What is learned: losses, metrics and, where it is known, the optimum."""
