"""What the input side of a training step costs: gather, augment, normalise, beside the step itself."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import interleaved
from saddle_jax import data, models
from saddle_jax.base import checks
from saddle_jax.core.trees import replicate
from saddle_jax.data.recipes import RECIPES
from saddle_jax.graphs.named import ring
from saddle_jax.methods import METHODS, options_of
from saddle_jax.tasks import supervised


def input_share(
    model_name: str, agents: int, batch_size: int, method_name: str, repeats: int
) -> dict[str, float]:
    """Measures seconds of input and of a whole step on CIFAR-shaped images, and their ratio."""
    checks.known("method", method_name, METHODS)
    checks.known("model", model_name, models.NAMES)
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), np.uint8))
    labels = jnp.asarray(np.arange(50_000) % 10)
    partition = data.make_partition("iid", np.asarray(labels), agents, alpha=1.0, seed=0)
    batches = data.Batches(partition, batch_size, seed=0)
    samples, mask = batches.step(0, 0)
    recipe, key = RECIPES["cifar10"], batches.augmentation_key(0, 0)
    model = models.build(model_name, 10)
    rho = {"rho": 0.1} if "rho" in options_of(method_name) else {}
    method = METHODS[method_name](ring(agents), learning_rate=0.1, **rho)
    params = replicate(models.init(model, (32, 32, 3), jax.random.key(0)), agents)
    state = method.init(params)

    def make_batch(samples, mask, key):
        chosen = recipe.for_agents(key, data.take(images, samples))
        return {"inputs": chosen, "targets": data.take(labels, samples), "mask": mask}

    batch = jax.jit(make_batch)
    step = jax.jit(lambda p, s, b: method.step(supervised.cross_entropy(model), p, s, b)[:2])
    ready = batch(samples, mask, key)
    runs = {"input": lambda: batch(samples, mask, key), "step": lambda: step(params, state, ready)}
    timing = interleaved(runs, repeats)
    medians = {name: timing.seconds(name).median for name in runs}
    return {**medians, "ratio": timing.ratio("input", "step").median}
