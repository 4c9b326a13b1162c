"""The settings of a run as text and numbers."""

from saddle_jax.settings.settings import Settings as Settings
