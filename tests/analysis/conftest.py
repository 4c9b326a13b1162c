"""Three trained folders, which tests copy: stages of one run, two seeds together, and one of them alone."""

import dataclasses
import pathlib
import shutil

import pytest

from saddle_jax.analysis import sharpness
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

SHARP = Settings(
    agents=3,
    model="logistic",
    epochs=4,
    partition="dirichlet(1.0)",
    learning_rate=0.05,
    eval_every_epochs=2,
    keep_checkpoints=5,
    sharpness_every_epochs=2,
    sharpness_images=64,
)
SMALL = Settings(agents=3, model="logistic", method="qgm", epochs=2, eval_agents="never", devices="1")


@pytest.fixture(scope="session")
def sharp():
    """The settings of the run whose sharpness is measured while it trains."""
    return SHARP


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folders "sharp", "both" with seeds 0 and 1, and "alone" with seed 1; no test changes them."""
    folder = tmp_path_factory.mktemp("runs")
    loop.train(SHARP, folder / "sharp", Screen(quiet=True), curvature=sharpness.metrics)
    loop.train(dataclasses.replace(SMALL, seeds="0,1"), folder / "both", Screen(quiet=True))
    loop.train(dataclasses.replace(SMALL, seed=1), folder / "alone", Screen(quiet=True))
    return folder


@pytest.fixture
def trained(runs, tmp_path):
    """A copy of "sharp" for each test: what one test writes into the folder, no other meets."""
    return pathlib.Path(shutil.copytree(runs / "sharp", tmp_path / "runs" / "one"))
