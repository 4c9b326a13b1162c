"""A model of your own: any flax module, or a pair of functions, trained on the embedded digits."""

import flax.linen as nn
import jax

import saddle_jax as sj


class Maxout(nn.Module):
    """One hidden layer of units that pass on the largest of three numbers (Goodfellow et al., 2013)."""

    @nn.compact
    def __call__(self, images):  # [B, H, W, C] of one agent: no agent axis appears here
        pieces = nn.Dense(3 * 64)(images.reshape(images.shape[0], -1))
        return nn.Dense(10)(pieces.reshape(-1, 64, 3).max(axis=-1))


def init(key):
    return {"w": 0.01 * jax.random.normal(key, (64, 10))}


def apply(params, images):
    return images.reshape(images.shape[0], -1) @ params["w"]


method = sj.q_saddle(sj.ring(10), learning_rate=0.1, rho=0.05)
models = {
    "maxout": Maxout(),
    "linear": (init, apply),
}
compared = sj.compare(
    {
        name: sj.Experiment(method, "digits", model=model, epochs=8, seeds=[0, 1], workdir=f"runs/own/{name}")
        for name, model in models.items()
    },
    quiet=True,
)
print(compared)
