"""Runs as Python objects, for scripts and notebooks; `saddle_jax.training` offers their names."""
