"""Papers to reproduce, one module or subpackage each."""
