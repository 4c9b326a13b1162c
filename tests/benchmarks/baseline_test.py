"""The PyTorch that we measure ourselves against computes what we compute."""

import shutil

import numpy as np
import pytest

from benchmarks.steps import best_variant
from benchmarks.work import OurStep, Work

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'saddle_jax[bench]'")

from benchmarks.baselines.pytorch import steps  # noqa: E402
from benchmarks.baselines.pytorch.steps import (  # noqa: E402 (needs PyTorch)
    VARIANTS,
    CannotCompileError,
    PyTorchStep,
    Variant,
    flatten,
)

# These programs run three times: compiling them fast matters more than fast code.
FAST_TO_COMPILE = {"xla_backend_optimization_level": 0}
WORKS = [
    Work("q_saddle", "resnet8", 3, 2, (8, 8, 3)),
    Work("n_saddle", "resnet8", 3, 2, (8, 8, 3)),
    Work("q_saddle", "cnn", 5, 2, (8, 8, 1), degree=4),
    Work("n_saddle", "mlp", 5, 3, (4, 6, 3)),
]


@pytest.fixture(autouse=True)
def one_thread():
    """PyTorch's threads wait for each other by spinning: beside other tests that takes long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_three_steps_of_both_give_the_same_parameters(work):
    ours = OurStep(work, FAST_TO_COMPILE)
    start = flatten(ours.params, work.image_shape)[1].numpy()
    theirs = {variant: PyTorchStep(work, variant) for variant in VARIANTS}
    for _ in range(3):
        ours()
        found = {variant: step() for variant, step in theirs.items()}
    layout, expected = flatten(ours.params, work.image_shape)
    assert np.abs(expected.numpy() - start).max() > 0.01  # a step is larger than what we compare to
    for variant, models in found.items():
        assert theirs[variant].layout == layout
        np.testing.assert_allclose(models.numpy(), expected.numpy(), atol=1e-4, err_msg=str(variant))


@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler has warnings of its own
@pytest.mark.parametrize("agents", ["threads", "vmap"])
def test_three_compiled_steps_give_the_same_parameters(agents):
    work = Work("q_saddle", "mlp", 3, 2, (4, 4, 1))
    ours = OurStep(work, FAST_TO_COMPILE)
    for _ in range(3):
        ours()
    theirs = steps.compiled_step(work, Variant(agents, channels_last=False, compiled=True))
    theirs()
    expected = flatten(ours.params, work.image_shape)[1].numpy()
    np.testing.assert_allclose(theirs().numpy(), expected, atol=1e-4)


def test_what_cannot_be_compiled_is_left_out_with_a_reason(monkeypatch):
    def fails(function, **_):
        def run(*_):
            raise torch._dynamo.exc.InternalTorchDynamoError("no C++ compiler\nand more")

        return run

    monkeypatch.setattr(torch, "compile", fails)
    work = Work("q_saddle", "mlp", 3, 2, (4, 4, 1))
    with pytest.raises(CannotCompileError, match=r"^InternalTorchDynamoError: no C\+\+ compiler$"):
        steps.compiled_step(work, Variant("loop", channels_last=False, compiled=True))
    variant, figures = best_variant(steps, work)
    assert not variant.compiled
    assert figures["torch.compile"] == "left out (InternalTorchDynamoError: no C++ compiler)"
    assert figures["tried"].keys() == {"loop", "threads", "vmap"}
