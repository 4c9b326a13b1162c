"""Things of a user's own, for tests of runs that bring them: a file, and flags that name what is in it."""

import json

from saddle_jax.cli import __main__ as cli

MINE = '''\
"""A method of momentum whose equations are those of QGM."""

import dataclasses

import saddle_jax as sj
from saddle_jax.compression.signs import Sign


def method(topology, learning_rate, beta=0.9, weight_decay=1e-4, compressor=None, *, name="mine"):
    """Makes it.

    Args:
      beta: of the momentum.
    """
    found = sj.qgm(topology, learning_rate, beta=beta, weight_decay=weight_decay, compressor=compressor)
    return dataclasses.replace(found, name=name)


def estimator(radius=0.05):
    return sj.sam(radius)


@dataclasses.dataclass(frozen=True)
class Compressor(Sign):
    size: int = 1


def graph(n, hops=1):
    return sj.circulant(n, list(range(1, hops + 1)))


def drawn(n, seed):
    return sj.erdos_renyi(n, 0.8, seed=seed)


def without_seed(n):
    import os
    return sj.erdos_renyi(n, 0.4, seed=int.from_bytes(os.urandom(4)))


def number(*_, **__):
    return 5


def on_another(topology, learning_rate):
    return sj.dpsgd(sj.ring(3), learning_rate)


def failing(topology, learning_rate):
    return {}["lost"]


def needy(topology, learning_rate, needed):
    return sj.dpsgd(topology, learning_rate)
'''
SMALL = ["--agents=4", "--model=logistic", "--epochs=1", "--batch_size=64",
         "--log_every_steps=1", "--devices=1"]  # fmt: skip
BROUGHT = ["--method=mine.py:method(beta=0.8)", "--gradient=mine.py:estimator(radius=0.1)",
           "--method.compressor=mine.py:Compressor(size=2)", "--topology=mine.py:graph"]  # fmt: skip
METHOD = "mine.py:method(beta=0.8, compressor=mine.py:Compressor(size=2))"  # of BROUGHT
OURS = ["--method=qgm", "--method.beta=0.8", "--gradient=sam(rho=0.1)",
        "--method.compressor=sign", "--topology=ring"]  # fmt: skip


def saddle(*arguments):
    return cli.main(["saddle", *map(str, arguments)])


def result(workdir):
    return json.loads((workdir / "result.json").read_text())
