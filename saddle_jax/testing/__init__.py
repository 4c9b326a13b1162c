"""Invariants of methods, graphs, models and so on, to test your own implementations.

    from saddle_jax import testing

    def test_my_method():
        testing.check_method(my_method)  # an AssertionError has a line for each invariant that fails

The names are in `__init__.pyi`, and each is imported on first use: checking a method needs no model and no
data.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
