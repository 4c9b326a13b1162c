"""What the environment asks of JAX and JAX cannot do: told in one line, as any mistake is."""

import os
import re
import sys
from types import ModuleType

from saddle_jax.base.errors import one_line


def import_jax() -> ModuleType:
    """Imports JAX, which reads its variables of the environment as it is imported.

    Raises:
      ValueError: it, or XLA, does not understand one of them; the message says which.
    """
    try:
        import jax
    except ValueError as error:
        raise ValueError(
            f"JAX cannot use a variable JAX_... of the environment: {one_line(error)}"
        ) from error
    if os.environ.get("XLA_FLAGS") and hasattr(os, "fork"):
        _check_xla_flags()
    return jax


def _check_xla_flags() -> None:
    """Lets a child read XLA_FLAGS first: XLA ends the process where it does not understand them.

    It ends it with status 1, which is that of a run that diverged.
    """
    from jaxlib import xla_client

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 2)
            xla_client.CompileOptions()  # reads them
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, errors="replace") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    # The first line says what is wrong, after letters, time and place; all flags that there are may follow.
    if status and (reason := re.search(r"^[EF]\d{4} .*?\] (.*)", told, re.MULTILINE)):
        raise ValueError(f"XLA cannot use XLA_FLAGS of the environment: {one_line(ValueError(reason[1]))}")


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
