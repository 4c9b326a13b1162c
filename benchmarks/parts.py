"""Gossip and compressors against a copy, evaluation against PyTorch's, input against the whole step."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, compared, interleaved
from benchmarks.work import Job, Options, Work, pytorch
from saddle_jax import data, models
from saddle_jax.base import checks
from saddle_jax.compression.base import Compressor
from saddle_jax.compression.quantization import quantize
from saddle_jax.compression.signs import sign
from saddle_jax.compression.sparsification import top_k
from saddle_jax.core.gossip import compress_stacked
from saddle_jax.core.network import mix, mixing_form
from saddle_jax.core.topology import Topology
from saddle_jax.core.trees import consensus, replicate
from saddle_jax.data.recipes import RECIPES
from saddle_jax.devices.lifting import agent_mesh
from saddle_jax.graphs.named import complete, ring, torus
from saddle_jax.methods import METHODS
from saddle_jax.tasks import objectives, supervised

_RESNET20_SIZE = 272_474
_KEY = jax.random.key(0)


def gossip_jobs(case: str, options: Options) -> list[Job]:
    """Lists the jobs that time one round of exact gossip on three graphs."""
    counts, size = ((10,), 1000) if options.quick else ((10, 40, 100, 400, 1000), _RESNET20_SIZE)
    return [
        Job(
            case,
            f"{graph.__name__}({agents})",
            functools.partial(_gossip, case, graph, agents, size, options),
        )
        for graph in (ring, torus, complete)
        for agents in counts
    ]


def _gossip(case: str, graph: Callable[..., Topology], agents: int, size: int, options: Options) -> Row:
    topology = graph(n=agents)
    x = jax.random.normal(_KEY, (agents, size))
    run = jax.jit(functools.partial(mix, topology))
    form = mixing_form(topology)
    return _against_copy(case, f"{topology.name}, {size:,} numbers each ({form})", lambda: run(x), x, options)


def compressor_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each operator on all agents' models, tensor by tensor, as in compressed gossip."""
    work = _models(options)
    return [
        Job(case, str(operator), functools.partial(_compress, case, operator, work, options))
        for operator in (quantize(8), top_k(0.3), sign())
    ]


def _models(options: Options) -> Work:
    """Returns the work whose models are compressed and evaluated."""
    return Work(model="mlp", agents=3, image_shape=(8, 8, 3)) if options.quick else Work()


def _compress(case: str, operator: Compressor, work: Work, options: Options) -> Row:
    params = work.params()
    run = jax.jit(lambda tree: compress_stacked(operator, tree, _KEY))
    flat = jnp.concatenate([leaf.reshape(work.agents, -1) for leaf in jax.tree.leaves(params)], axis=1)
    what = f"{operator}, {work.model}, {work.agents} agents"
    return _against_copy(case, what, lambda: run(params), flat, options)


def _against_copy(case: str, what: str, run: Callable[[], Any], x: Any, options: Options) -> Row:
    """Measures a function that could at best read and write x once, as a copy does."""
    copy, copied_bytes = measure.copy(x)
    timing = interleaved({"ours": run, "copy": copy}, options.repeats)
    figures = {
        "GB/s": copied_bytes / timing.seconds("ours").median / 1e9,
        "copy GB/s": copied_bytes / timing.seconds("copy").median / 1e9,
    }
    return compared(case, what, timing, "ours", "copy", "copy", figures)


def evaluation_jobs(case: str, options: Options) -> list[Job]:
    """Lists the job that evaluates the consensus model on a test set of CIFAR-10's shape."""
    work = _models(options)
    count = 100 if options.quick else 5000
    what = f"{work.model}, mean of {work.agents} agents, {count:,} images"
    return [Job(case, what, functools.partial(_evaluate, case, what, work, count, options))]


def evaluations(work: Work, count: int) -> dict[str, Callable[[], dict[str, float]]]:
    """Returns our evaluation and, if PyTorch is installed, its own in two memory formats, on equal models."""
    random, recipe = np.random.default_rng(0), RECIPES["cifar10"]
    images = random.integers(0, 256, (count, *work.image_shape), np.uint8)
    labels = random.integers(0, 10, count)
    params = work.params()
    objective = objectives.make("classification", models.functions(work.network()))
    samples, mesh = {"inputs": images, "targets": labels}, agent_mesh() if jax.device_count() > 1 else None
    runs: dict[str, Callable[[], dict[str, float]]] = {
        "ours": lambda: objectives.evaluate(objective, consensus(params), samples, recipe, mesh)
    }
    opponent = pytorch("steps")
    if opponent is not None:
        layout, matrix = opponent.flatten(params, work.image_shape)
        their_labels = opponent.labels_of(labels)
        for name, last in (("PyTorch", False), ("PyTorch: channels_last", True)):
            their_images = opponent.images_of(images[None], last)[0]
            runs[name] = functools.partial(
                opponent.evaluate, work.model, layout, matrix, their_images, their_labels, recipe
            )
    return runs


def _evaluate(case: str, what: str, work: Work, count: int, options: Options) -> Row:
    timing = interleaved(evaluations(work, count), options.repeats)
    seconds = timing.seconds("ours")
    figures = {"images/s": count / seconds.median}
    others = [name for name in timing.rounds if name != "ours"]
    if not others:
        return Row(case, what, seconds, figures=figures)
    best = min(others, key=lambda name: timing.seconds(name).median)
    return compared(case, what, timing, "ours", best, best, figures)


def input_share(
    model_name: str, agents: int, batch_size: int, method_name: str, repeats: int
) -> dict[str, float]:
    """Measures seconds of input (gather, augment, normalise) and of a step on CIFAR shapes, and the ratio."""
    checks.known("method", method_name, METHODS)
    checks.known("model", model_name, models.NAMES)
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), np.uint8))
    labels = jnp.asarray(np.arange(50_000) % 10)
    partition = data.make_partition("iid", np.asarray(labels), agents, seed=0)
    batches = data.Batches(partition, batch_size, seed=0)
    samples, mask = batches.step(0, 0)
    recipe, key = RECIPES["cifar10"], batches.augmentation_key(0, 0)
    model = models.build(model_name, 10)
    rho = {"rho": 0.1} if "rho" in METHODS.options(method_name) else {}
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
