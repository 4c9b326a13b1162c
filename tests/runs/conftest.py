"""One trained run, which tests copy."""

import pathlib
import shutil

import pytest

from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

SMALL = Settings(
    agents=2,
    model="logistic",
    epochs=1,
    batch_size=128,
    eval_agents="never",
    checkpoint_every_steps=2,
    log_every_steps=1,
    devices="1",
)


@pytest.fixture(scope="session")
def small():
    """The settings of the run."""
    return SMALL


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of the run, which no test changes."""
    folder = tmp_path_factory.mktemp("trained") / "one"
    loop.train(SMALL, folder, Screen(quiet=True))
    return folder


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the run, with which a test may do what it likes."""
    return pathlib.Path(shutil.copytree(trained, tmp_path / "run"))
