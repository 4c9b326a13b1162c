"""Modules of PyTorch as models: their logits, gradients and steps are torch's; what cannot be is refused.

These tests need PyTorch and torchax, the extra `torch`, and are skipped elsewhere.
"""

import io
import re
import subprocess
import sys
import threading

import jax
import numpy as np
import optax
import pytest
import safetensors.numpy

import saddle_jax as sj
from saddle_jax import models
from saddle_jax.runs.checkpoints import encode

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("torchax", reason="needs the extra torch")

import torch_networks as nets  # noqa: E402
from torch import nn  # noqa: E402

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(4, 16, 16, 3)).astype(np.float32)
SMALL = RANDOM.normal(size=(4, 8, 8, 3)).astype(np.float32)
TOKENS = RANDOM.integers(0, 65, (4, 16)).astype(np.int32)
ZOO = {
    "mlp": (nets.MLP, SMALL[..., :1]),
    "resnet8": (nets.resnet8, IMAGES),
    "convolutions": (nets.Convolutions, SMALL),
    "vit": (nets.ViT, IMAGES),
    "gpt": (nets.GPT, TOKENS),
    "gpt, attention by hand": (lambda: nets.GPT(fused=False), TOKENS),
    "lstm": (nets.LSTM, TOKENS),
    "in place": (nets.InPlace, SMALL),
}


def made(factory, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def in_torch(inputs):
    x = torch.from_numpy(np.array(inputs))
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x.long()


def targets_of(inputs):
    return RANDOM.integers(0, 10, inputs.shape[: inputs.ndim if inputs.ndim == 2 else 1]).astype(np.int32)


def gradient_of(module, x, y):
    """Torch's gradient, in our layout."""
    module.zero_grad()
    nn.functional.cross_entropy(
        module(in_torch(x)).flatten(0, -2), torch.from_numpy(y).long().flatten()
    ).backward()
    layout = models.functions(module).layout
    zero = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    arrays = {
        name: (zero[name] if p.grad is None else p.grad).numpy() for name, p in module.named_parameters()
    }
    return layout._turned(arrays)


def loss_of(model):
    def loss(params, batch):
        logits = model.apply(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    return loss


def relative(ours, theirs):
    """The largest difference of two trees, as a share of the largest number."""
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    return max(np.abs(a - b).max() for a, b in pairs) / max(np.abs(b).max() for _, b in pairs)


@pytest.mark.parametrize("name", ZOO)
def test_logits_gradients_and_steps_are_torchs(name):
    factory, x = ZOO[name]
    module, y = made(factory), targets_of(x)
    model = sj.from_torch(module, x)
    params = model.init(jax.random.key(0), x[:1])
    loss = loss_of(model)
    assert relative(jax.jit(model.apply)(params, x), module(in_torch(x)).detach().numpy()) < 2e-6
    # Three agents with models and batches of their own, and SAM's two gradients in a step of D-PSGD.
    agents = [made(factory, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *a: np.stack(a), *[model.layout.pack(each) for each in agents])
    batches = [(np.roll(x, i, 0)[:3], np.roll(y, i, 0)[:3]) for i in range(3)]
    batch = jax.tree.map(lambda *a: np.stack(a), *batches)
    theirs = [gradient_of(module, *each) for module, each in zip(agents, batches, strict=True)]
    gradients = jax.jit(jax.vmap(jax.grad(loss)))(stacked, batch)
    assert relative(gradients, jax.tree.map(lambda *a: np.stack(a), *theirs)) < 5e-6
    method = sj.saddle(sj.dpsgd(sj.ring(3), 0.1, beta=0.0, weight_decay=0.0), sj.sam(0.05))
    stepped, _, _ = method.compile(loss)(stacked, method.init(stacked), batch)
    wanted = []
    for agent, gradient, each in zip(agents, theirs, batches, strict=True):
        before = model.layout.pack(agent)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        sj.to_torch(agent, {n: a + 0.05 * gradient[n] / norm for n, a in before.items()})
        sharp = gradient_of(agent, *each)
        wanted.append({n: a - 0.1 * sharp[n] for n, a in before.items()})
    means = {n: stacked[n].mean(0) for n in params}
    moved = {n: np.asarray(stepped[n][1]) - means[n] for n in params}
    assert relative(moved, {n: np.mean([w[n] for w in wanted], 0) - means[n] for n in params}) < 5e-4
    # And back: a fresh module has the trained agent's logits.
    fresh = sj.to_torch(made(factory, 7), {n: a[1] for n, a in stepped.items()})
    ours = model.apply({n: a[1] for n, a in stepped.items()}, x)
    assert relative(ours, fresh(in_torch(x)).detach().numpy()) < 5e-6


@pytest.mark.parametrize("name", ["resnet8", "gpt", "lstm"])
def test_float64_agrees_to_its_last_digits(name, x64):
    factory, x = ZOO[name]
    module, y = made(factory).double(), targets_of(x)
    x = x.astype(np.float64) if x.dtype == np.float32 else x
    model = sj.from_torch(module, x)
    params = model.init(jax.random.key(0), x[:1])
    theirs = gradient_of(module, x, y)
    assert relative(jax.jit(jax.grad(loss_of(model)))(params, (x, y)), theirs) < 1e-13


def test_hessian_vector_products_are_torchs():
    module, y = made(nets.resnet8), targets_of(IMAGES)
    model = sj.from_torch(module, IMAGES)
    params = model.init(jax.random.key(0), IMAGES[:1])
    names = list(params)
    v = {n: RANDOM.normal(size=a.shape).astype(np.float32) for n, a in params.items()}
    batch = (IMAGES, y)
    ours = jax.jit(lambda p: jax.jvp(jax.grad(lambda q: loss_of(model)(q, batch)), (p,), (v,))[1])(params)
    own = dict(module.named_parameters())
    loss = nn.functional.cross_entropy(module(in_torch(IMAGES)), torch.from_numpy(y).long())
    first = torch.autograd.grad(loss, [own[n] for n in names], create_graph=True)
    along = [torch.from_numpy(np.array(a)) for a in model.layout.in_torch(v).values()]
    second = torch.autograd.grad(first, [own[n] for n in names], along)
    theirs = model.layout._turned({n: a.numpy() for n, a in zip(names, second, strict=True)})
    assert relative(ours, theirs) < 1e-5


def test_a_convolutional_network_takes_our_kernels_and_is_not_transposed():
    module = made(nets.resnet8)
    model = sj.from_torch(module, IMAGES)
    flax = models.make_model("resnet8", 10, "groupnorm", "auto")
    batch = (np.stack([IMAGES] * 3), np.zeros((3, 4), np.int32))
    counts = []
    for each in (model, flax):
        params = sj.replicate(models.init(each, (16, 16, 3), jax.random.key(0)), 3)
        method = sj.dpsgd(sj.ring(3), 0.1, beta=0.0, weight_decay=0.0)
        lowered = jax.jit(method.step, static_argnums=0).lower(
            loss_of(each), params, method.init(params), batch
        )
        text = lowered.compile().as_text()
        counts.append(
            [len(re.findall(word, text)) for word in ("saddle_", r" convolution\(", r" transpose\(")]
        )
    (native, *others), (of_flax, *_) = counts
    assert 0 < native <= of_flax
    assert others == [0, 0]


def test_a_factory_draws_weights_for_every_seed_and_a_module_brings_its_own():
    module = made(nets.LSTM, 3)
    own, drawn = sj.from_torch(module, TOKENS), sj.from_torch(nets.LSTM, TOKENS)

    def first(model, seed):
        return models.initialise(model, jax.ShapeDtypeStruct((1, 16), np.int32), jax.random.key(seed))

    assert relative(first(own, 0), own.layout.pack(module)) == relative(first(own, 1), first(own, 0)) == 0
    state = torch.random.get_rng_state()
    assert relative(first(drawn, 0), first(drawn, 0)) == 0 < relative(first(drawn, 1), first(drawn, 0))
    assert torch.equal(torch.random.get_rng_state(), state)  # torch's own random numbers stay as they are
    with torch.no_grad():
        module.out.bias += 1
    assert relative(first(sj.from_torch(module), 0), first(own, 0)) > 0


def test_frozen_and_tied_parameters_are_sent_and_trained_once_or_never():
    module = made(nets.GPT)
    module.wpe.weight.requires_grad_(False)
    model = sj.from_torch(module, TOKENS)
    params = model.init(jax.random.key(0), TOKENS[:1])
    assert "wpe.weight" not in params
    assert len({"head.weight", "wte.weight"} & set(params)) == 1
    method = sj.dpsgd(sj.ring(3), 0.1, beta=0.0, weight_decay=0.0)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert models.count(params) == trained
    assert sj.comm_cost(method, sj.replicate(params, 3)).wire_bytes_per_agent(1) == 2 * 4 * trained
    back = sj.to_torch(module, params)
    assert back.head.weight is back.wte.weight
    with pytest.raises(sj.ArgumentError, match="params must be those of one agent"):
        sj.to_torch(module, sj.replicate(params, 3))
    with pytest.raises(sj.ArgumentError, match="params must be those of this module"):
        sj.to_torch(nets.GPT, params)  # in which wpe is trained


class Loose(nets.MLP):
    def __init__(self):
        super().__init__()
        self.shift = torch.ones(10)

    def forward(self, x):
        return super().forward(x) + self.shift


class Branching(nets.MLP):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class OwnGradient(nets.MLP):
    def forward(self, x):
        return StraightThrough.apply(super().forward(x))


class Counting(nets.MLP):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Pair(nets.MLP):
    def forward(self, x):
        return super().forward(x), x


class Unknown(nets.MLP):
    def forward(self, x):
        return super().forward(x) + torch.special.airy_ai(x).mean()


class Random(nets.MLP):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


GREY = SMALL[..., :1]


@pytest.mark.parametrize(
    ("factory", "example", "message"),
    [
        (
            lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)),
            GREY,
            "BatchNorm2d in 1: use GroupNorm",
        ),
        (lambda: nn.Sequential(nets.MLP(), nn.Dropout(0.5)), GREY, "no random numbers.*set its p to 0"),
        (lambda: nets.ViT(dropout=0.1), IMAGES, "no random numbers"),
        (
            lambda: nn.LSTM(3, 4, num_layers=2, dropout=0.5, batch_first=True),
            SMALL[:, 0],
            "no random numbers",
        ),
        (Random, GREY, "no random numbers"),
        (Branching, GREY, "must not branch on data.*torch.where"),
        (Loose, GREY, "parameters or buffers.*register_buffer"),
        (OwnGradient, GREY, "torch.autograd.Function StraightThrough"),
        (Counting, GREY, "changes .*calls"),
        (Pair, GREY, "one tensor, got tuple"),
        (Unknown, GREY, "operations that torchax knows.*airy_ai"),
        (lambda: nets.MLP().bfloat16(), GREY, "float32 parameters, got torch.bfloat16"),
        (lambda: nets.MLP().to("meta"), GREY, "on the device meta"),
        (lambda: nets.MLP().requires_grad_(False), GREY, "parameters to train, got none"),
        (nets.MLP, (GREY * 10).astype(np.uint8), "normalisation.*got uint8"),
        (lambda: 3, GREY, "function that makes one, got 3"),
        (lambda: 1 / 0, GREY, "cannot be made: ZeroDivisionError"),
        (nets.MLP, SMALL, "failed on its example"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(factory, example, message):
    with pytest.raises(sj.ArgumentError, match=message) as caught:
        sj.from_torch(factory, example)
    assert "\n" not in str(caught.value)


def test_dropout_works_where_it_draws_nothing():
    module = made(lambda: nets.ViT(dropout=0.1)).eval()
    model = sj.from_torch(module, IMAGES)
    params = model.init(jax.random.key(0), IMAGES)
    assert relative(model.apply(params, IMAGES), module(in_torch(IMAGES)).detach().numpy()) < 2e-6
    assert not any(isinstance(p, jax.core.Tracer) for p in module.parameters())  # the module is as it was


def test_threads_may_trace_one_module():
    model = sj.from_torch(made(nets.MLP), GREY)
    params = model.init(jax.random.key(0), GREY)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(jax.jit(lambda p: model.apply(p, GREY))(params)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[0], each) for each in found)
    assert len(found) == 4


@pytest.mark.slow
def test_no_stable_torchax_is_out_that_could_be_pinned():
    command = [sys.executable, "-m", "pip", "index", "versions", "torchax"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"torchax \(([\d.]+)\)", done.stdout)
    if not found:
        pytest.skip("needs an index of packages")
    assert found[1] == "0.0.13", "if it can be imported with torch 2.13, pyproject.toml should have it"


# ---- the way out: our own networks in torch's names, and weights from files ----


TWINS = {
    "resnet20": lambda norm: nets.ResNet(norm=norm),
    "resnet18": lambda norm: nets.ResNet(blocks=2, widths=(64, 128, 256, 512), stem=True, norm=norm),
    "mobilenet_v2": lambda norm: nets.MobileNetV2(norm=norm),
}


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("resnet20", "evonorm"),
        ("resnet18", "evonorm"),
        ("mobilenet_v2", "evonorm"),
        ("resnet20", "groupnorm"),
        ("mobilenet_v2", "groupnorm"),
    ],
)
def test_our_networks_have_the_logits_of_their_torch_twins(name, norm, tmp_path):
    x = RANDOM.normal(size=(2, 32, 32, 3)).astype(np.float32)
    model = models.make_model(name, 10, norm, "fast")
    params = models.init(model, x.shape[1:], jax.random.key(1))
    arrays = model.layout.state_dict(params)
    twin = TWINS[name](norm)
    twin.load_state_dict({n: torch.from_numpy(np.array(a)) for n, a in arrays.items()}, strict=True)
    assert relative(jax.jit(model.apply)(params, x), twin.eval()(in_torch(x)).detach().numpy()) < 2e-5
    file = tmp_path / "twin.pt"
    of_ddp = {f"module.{n}": tensor for n, tensor in twin.state_dict().items()}
    torch.save({"state_dict": of_ddp, "epoch": 3}, file)
    again = models.make_model(f"pretrained({name}, '{file}')", 10, norm, "fast")
    assert relative(models.init(again, x.shape[1:], jax.random.key(5)), params) == 0


def test_files_hold_what_the_module_holds():
    module = made(nets.resnet8)
    model = sj.from_torch(module)
    params = model.init(jax.random.key(0), None)
    held = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    named = safetensors.numpy.load(encode(params, "safetensors", {}, model.layout))
    state = torch.load(io.BytesIO(encode(params, "torch", {}, model.layout)), weights_only=True)
    for found in (named, {name: tensor.numpy() for name, tensor in state.items()}):
        assert found.keys() == held.keys()
        assert all(np.array_equal(found[name], held[name]) for name in held)


def test_files_of_other_weights_are_refused(tmp_path):
    def start(file):
        return models.init(
            models.make_model(f"pretrained(resnet8, '{file}')", 10, "evonorm", "auto"),
            (8, 8, 3),
            jax.random.key(0),
        )

    torch.save(nets.MLP().state_dict(), tmp_path / "mlp.pt")
    with pytest.raises(sj.ArgumentError, match=r"got none for bn1.bias, .* and others for net"):
        start(tmp_path / "mlp.pt")
    torch.save(nets.ResNet(5, blocks=1, norm="evonorm").state_dict(), tmp_path / "five.pt")
    with pytest.raises(sj.ArgumentError, match=r"fc.bias of shape \[10\].* got \[5\]"):
        start(tmp_path / "five.pt")
    torch.save(nets.MLP(), tmp_path / "pickled.pt")
    with pytest.raises(sj.ArgumentError, match="cannot be read as weights alone"):
        start(tmp_path / "pickled.pt")
    with pytest.raises(sj.ArgumentError, match="a file that exists"):
        start(tmp_path / "none.safetensors")
    with pytest.raises(sj.ArgumentError, match=r"safetensors or .pt"):
        start(tmp_path / "mlp.npz")
