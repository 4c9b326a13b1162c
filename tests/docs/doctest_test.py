"""The examples in docstrings print what they say, and every public factory has one."""

import doctest
import importlib
import inspect
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj

# What an example may use without importing it.
NAMES = {"sj": sj, "jax": jax, "jnp": jnp, "np": np, "optax": optax}
# What trains, and what reads a run, is shown in docs/own.md and docs/runs.md, which tests run.
TRAINED = {"Comparison", "compare", "load_runs"}
OF_TORCH = {"from_torch", "to_torch"}  # an extra: docs/from_pytorch.md has examples
PACKAGE = pathlib.Path(sj.__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module):
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF | doctest.ELLIPSIS)
    examples = doctest.DocTestFinder(recurse=True).find(importlib.import_module(module), globs=dict(NAMES))
    failures: list[str] = []
    for example in examples:
        runner.run(example, out=failures.append)
    assert not failures, "".join(failures)
    assert runner.tries > 0


def test_every_public_class_has_an_example():
    things = [getattr(sj, name) for name in dir(sj) if name not in TRAINED]
    things = [thing for thing in things if inspect.isclass(thing)]
    assert len(things) > 10
    assert [thing.__name__ for thing in things if ">>> " not in (thing.__doc__ or "")] == []


def test_every_public_factory_has_an_example():
    factories = [getattr(sj, name) for name in dir(sj) if name not in TRAINED | OF_TORCH]
    factories = [factory for factory in factories if inspect.isfunction(factory)]
    assert len(factories) > 40
    assert [factory.__name__ for factory in factories if ">>> " not in (factory.__doc__ or "")] == []
