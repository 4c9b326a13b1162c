"""A network that loses what a table says, so that a transcription can lose the same."""

import jax.numpy as jnp
import numpy as np


class Lost:
    """Loses messages one way: heard[t, i, j] says whether i hears j in step t, bool [T, A, A]."""

    def __init__(self, heard):
        self.heard = heard

    def arrived(self, key, t, round_number, graph):
        del key, round_number
        agents = np.arange(graph.size)[:, None]
        return jnp.asarray(self.heard)[t][agents, graph.neighbours]
