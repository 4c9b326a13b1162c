"""saddle_jax: sharpness-aware decentralized deep learning, all agents in one JAX program.

    import saddle_jax as sj

README.md and docs/library.md show the first steps; `saddle_jax.base.types` explains the axes A, B and K.

The public names stand in `__init__.pyi`. Each is imported when it is first asked for: JAX takes seconds, in
which the command, which is a part of this package, must answer a Ctrl-C already.
"""

import lazy_loader

from saddle_jax.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
