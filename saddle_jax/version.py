"""The version, in a module of its own: pyproject.toml reads it without importing JAX."""

__version__ = "0.2.0"

# Of a run folder: config.json and the seals of checkpoints carry it. Version 0.1.0 wrote none, 0.2.0 wrote 2.
RUN_FORMAT = 6
