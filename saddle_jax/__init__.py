"""saddle_jax: sharpness-aware decentralized deep learning, all agents in one JAX program.

    import saddle_jax as sj

README.md shows the first steps; `saddle_jax.types` explains the axes A, B and K.

What it offers is imported when it is first asked for: JAX takes seconds, in which the command, which is a
part of this package, must answer a Ctrl-C already.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from saddle_jax.version import __version__ as __version__

if TYPE_CHECKING:
    from saddle_jax.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """A name of `saddle_jax.api`, or a module of this package."""
        if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__all__":
            return __dir__()
        found = (
            None if name.startswith("_") else getattr(importlib.import_module(f"{__name__}.api"), name, None)
        )
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found  # the next time it is there
        return found

    def __dir__() -> list[str]:
        """What there is to ask for."""
        return [name for name in dir(importlib.import_module(f"{__name__}.api")) if not name.startswith("_")]
