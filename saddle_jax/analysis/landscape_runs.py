"""Loss surfaces around the consensus models of runs, all on one grid and along one draw of directions."""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from saddle_jax.analysis import landscape, sharpness
from saddle_jax.base.types import Params
from saddle_jax.devices import policy
from saddle_jax.runs.run_folder import read_config
from saddle_jax.training import reopen
from saddle_jax.training.build import Replica
from saddle_jax.training.progress import Screen


@dataclasses.dataclass(frozen=True)
class Scan:
    """How the loss around a model is computed.

    Attributes:
      kind: which directions are taken, see `landscape.directions`.
      seed: the seed of the directions.
      images: how many training images the loss is computed on.
    """

    kind: landscape.Kind
    seed: int
    images: int


def open_runs(
    workdirs: Sequence[pathlib.Path],
    data_dir: str | None,
    screen: Screen,
    code: Sequence[str] = (),
    replica: int | None = None,
) -> list[tuple[Replica, int, Params]]:
    """Opens runs at their newest checkpoints; `screen` shows what had to be passed over.

    `replica` chooses a run of the folders that hold several.
    """
    return [
        reopen.open_run(workdir, screen.warn, data_dir, replica_in(workdir, replica), code)
        for workdir in workdirs
    ]


def replica_in(workdir: pathlib.Path, replica: int | None) -> int | None:
    """Returns the number of a run where a folder holds several; None where it holds one."""
    return replica if read_config(workdir).has_replicas else None


def surfaces(
    names: Sequence[str],
    runs: Sequence[tuple[Replica, int, Params]],
    x: np.ndarray,
    scan: Scan,
    screen: Screen,
) -> np.ndarray:
    """Computes the losses of all runs at the places `x` [n] along both directions, float64 [runs, n, n]."""
    group = policy.landscape_points()
    losses = []
    screen.start(len(runs) * len(x) ** 2, 0)
    for name, (replica, step, params) in zip(names, runs, strict=True):
        model = reopen.choose(params, None)
        plane = landscape.directions(scan.kind, model, jax.random.key(scan.seed))
        chunks = sharpness.training_chunks(replica, scan.images)
        count = min(scan.images, len(np.unique(replica.partition.samples)))
        screen.line(f"{name}: step {step:,}, {count:,} of its training samples, not augmented")
        loss_fn = sharpness.loss_of(replica, "auto")
        loss = landscape.surface(loss_fn, model, plane, x, x, chunks, group=group, progress=screen.advance)
        middle = len(x) // 2
        screen.line(f"{name}: loss {loss[middle, middle]:.4f}, up to {np.nanmax(loss):.4f} around it")
        losses.append(loss)
    screen.stop()
    return np.stack(losses)
