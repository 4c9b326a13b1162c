"""The version, in a module of its own: pyproject.toml reads it without importing JAX."""

__version__ = "0.1.0"
