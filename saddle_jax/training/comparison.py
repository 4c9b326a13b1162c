"""The runs of a comparison: which folder and which settings each cell of the grid has."""

import dataclasses
import pathlib
from collections.abc import Sequence

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.training.config import Config
from saddle_jax.training.memory import fits
from saddle_jax.training.program import build


def parse_seeds(texts: Sequence[str]) -> list[str]:
    """Checks that seeds are whole numbers and returns each of them once, written in one way."""
    if not all(text.isdecimal() for text in texts):
        raise ArgumentError(f"seeds must be whole numbers, got {','.join(texts)}")
    return [str(int(text)) for text in dict.fromkeys(texts)]


def runs_of(
    base: Config,
    methods: Sequence[str],
    compressors: Sequence[str],
    seeds: Sequence[str],
    folder: pathlib.Path,
    *,
    together: bool,
) -> dict[pathlib.Path, Config]:
    """Lists the runs of all methods, compressors and seeds by their folders.

    Runs whose folders exist keep them. With `together`, the other seeds of a method and compressor share a
    program and a folder, where memory suffices.
    """
    joint: dict[pathlib.Path, Config] = {}
    single: dict[str, dict[pathlib.Path, Config]] = {seed: {} for seed in seeds}  # a table fills evenly
    for method in methods:
        for compressor in compressors:
            config = dataclasses.replace(base, method=method, compressor=compressor)
            name = f"{method}-{compressor}"
            joint_runs, remaining = _joint_runs(config, folder, name, seeds, together)
            joint |= joint_runs
            for seed in remaining:
                single[seed][folder / f"{name}-seed{seed}"] = dataclasses.replace(config, seed=int(seed))
    return joint | {path: config for runs in single.values() for path, config in runs.items()}


def _joint_runs(
    config: Config, folder: pathlib.Path, name: str, seeds: Sequence[str], together: bool
) -> tuple[dict[pathlib.Path, Config], list[str]]:
    """Lists the runs of several seeds each, and returns them with the seeds that they do not cover."""
    joint: dict[pathlib.Path, Config] = {}
    remaining = list(seeds)
    for path in sorted(folder.glob(f"{name}-seeds*/config.json")):
        recorded = path.parent.name.removeprefix(f"{name}-seeds").split(",")
        if set(recorded) <= set(remaining):
            joint[path.parent] = dataclasses.replace(config, seeds=",".join(recorded))
            remaining = [seed for seed in remaining if seed not in recorded]
    new = [seed for seed in remaining if not (folder / f"{name}-seed{seed}" / "config.json").exists()]
    if together and len(new) > 1 and _fit_together(config, ",".join(new)):
        joint[folder / f"{name}-seeds{','.join(new)}"] = dataclasses.replace(config, seeds=",".join(new))
        remaining = [seed for seed in remaining if seed not in new]
    return joint, remaining


def _fit_together(config: Config, seeds: str) -> bool:
    """Tells whether these seeds can be one program, and whether memory suffices for it."""
    try:
        return fits(build(dataclasses.replace(config, seeds=seeds)))
    except (ValueError, RunError, OSError):  # random graphs, unequal epochs; or the run itself will say it
        return False
