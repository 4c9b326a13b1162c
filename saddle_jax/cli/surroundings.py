"""What the environment asks of JAX and JAX cannot do: told in one line, as any mistake is."""

import os
import sys
from types import ModuleType

from saddle_jax.base.errors import one_line


def import_jax() -> ModuleType:
    """Imports JAX, which reads its variables of the environment as it is imported.

    Raises:
      ValueError: it does not understand one of them; the message says which.
    """
    try:
        import jax
    except ValueError as error:
        raise ValueError(
            f"JAX cannot use a variable JAX_... of the environment: {one_line(error)}"
        ) from error
    return jax


def unusable_devices() -> str | None:
    """Says that JAX has no devices to compute on, which any error may come from; None if it has some."""
    if "jax" not in sys.modules:
        return None
    try:
        sys.modules["jax"].devices()
    except Exception as reason:  # JAX asserts where it finds nothing that JAX_PLATFORMS names
        platforms = os.environ.get("JAX_PLATFORMS")
        asked = f"which JAX_PLATFORMS={platforms} asks for" if platforms else "of this machine"
        why = one_line(reason) if str(reason) else "there are none"
        return f"JAX cannot use the devices {asked} ({why}); JAX_PLATFORMS=cpu uses the CPU"
    return None
