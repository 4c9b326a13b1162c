"""Invariants that hold for all things of a kind, to be tried on anything that is plugged in.

    from saddle_jax import testing

    def test_my_method():
        testing.check_method(my_method)  # an AssertionError has a line for each invariant that fails

The names stand in `__init__.pyi`. Each is imported when it is first asked for: whoever checks a method needs
no network and no data.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
