"""Papers whose figures are reproduced, a module or a room each."""
