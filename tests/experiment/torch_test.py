"""Modules of PyTorch in experiments and on the command line, from the first step to the way back."""

import json

import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.cli.__main__ import main

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("torchax", reason="needs the extra torch")

import torch_networks as nets  # noqa: E402

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (80, 8, 8, 1)).astype(np.uint8)
SAMPLES = (IMAGES, np.arange(80) % 10)

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def small(num_classes):
    return Net(num_classes)
"""


def experiment(folder, model, **settings):
    method = sj.q_saddle(sj.ring(4), 0.1, rho=0.05, gossip=sj.choco(sj.top_k(0.5), 0.4))
    options = {"epochs": 2, "batch_size": 10, "partition": "iid", "devices": "2"} | settings
    return sj.Experiment(method, SAMPLES, SAMPLES, model=model, workdir=folder, **options)


def test_a_run_on_two_devices_resumes_bit_for_bit_and_is_measured(tmp_path):
    model = sj.from_torch(nets.MLP)
    whole = experiment(tmp_path / "whole", model)
    whole.train(quiet=True)
    experiment(tmp_path / "parts", model, epochs=1).train(quiet=True)
    parts = experiment(tmp_path / "parts", model)
    parts.train(quiet=True)
    ours, theirs = whole.model(), parts.model()
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.isfinite(whole.sharpness(images=16, iterations=2)[-1]["lambda_max"])
    assert whole.landscape(points=3, images=16).path.is_file()
    module = sj.to_torch(nets.MLP, ours)
    inputs = np.array(whole.trial.data.prepared({"inputs": IMAGES})["inputs"])
    x = torch.from_numpy(inputs).permute(0, 3, 1, 2)
    right = (module(x).argmax(1).numpy() == SAMPLES[1]).mean()
    assert right == pytest.approx(whole.evaluate()["accuracy"])


def test_the_command_line_trains_exports_and_begins_from_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    common = ["--dataset=synthetic", "--subset=80", "--agents=2", "--epochs=1"]
    assert main(["saddle", "train", "--model=net.py:Net", *common, "--seed=1", "--workdir=a"]) == 0
    assert main(["saddle", "export", "a", "--format=torch", "--code=net.py"]) == 0
    state = torch.load("a/model.pt", weights_only=True)
    assert state["conv.weight"].shape == (8, 1, 3, 3)
    namespace = {}
    exec(NET, namespace)
    namespace["Net"](10).load_state_dict(state, strict=True)
    again = ["--learning_rate=1e-9", "--workdir=b"]
    for file in ("a/model.pt", "a/model.safetensors"):
        if file.endswith("safetensors"):
            assert main(["saddle", "export", "a", "--code=net.py"]) == 0
        settings = [*common, *again[:1], f"--workdir=from-{file[-2:]}"]
        assert main(["saddle", "train", f"--model=pretrained(net.py:small, '{file}')", *settings]) == 0
        result = json.loads((tmp_path / f"from-{file[-2:]}" / "result.json").read_text())
        before = json.loads((tmp_path / "a" / "result.json").read_text())
        assert result["test_accuracy"] == pytest.approx(before["test_accuracy"])
    (tmp_path / "net.py").write_text(NET.replace("nn.GroupNorm(2, 8)", "nn.BatchNorm2d(8)"))
    capsys.readouterr()
    assert main(["saddle", "train", "--model=net.py:Net", *common, "--workdir=c"]) != 0
    assert "BatchNorm2d in norm" in capsys.readouterr().err


@pytest.mark.slow
def test_torchvisions_resnet18_is_trained(tmp_path):
    vision = torchvision()
    groups = {"norm_layer": lambda channels: torch.nn.GroupNorm(2, channels), "num_classes": 10}
    model = sj.from_torch(lambda: vision.models.resnet18(**groups), np.zeros((1, 32, 32, 3), np.float32))
    images = RANDOM.integers(0, 256, (24, 32, 32, 3)).astype(np.uint8)
    samples = (images, np.arange(24) % 10)
    method = sj.dpsgd(sj.ring(3), 0.01)
    run = sj.Experiment(
        method, samples, samples, model=model, epochs=1, batch_size=4, partition="iid", workdir=tmp_path
    )
    assert run.train(quiet=True)["status"] == "finished"


@pytest.mark.slow
def test_hugging_faces_gpt2_is_trained(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torchvision()  # which transformers imports
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=65, n_positions=16, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    tokens = RANDOM.integers(0, 65, (24, 17)).astype(np.int32)
    samples = (tokens[:, :-1], tokens[:, 1:])
    model = sj.from_torch(lambda: transformers.GPT2LMHeadModel(config), tokens[:1, :-1])
    run = sj.Experiment(
        sj.qgm(sj.ring(3), 0.1), samples, samples, model=model, loss="language", epochs=1, batch_size=4,
        partition="iid", workdir=tmp_path,
    )  # fmt: skip
    assert run.train(quiet=True)["status"] == "finished"


def torchvision():
    """Imports torchvision; its wheels for GPUs lack operators that they register, beside a torch for CPUs."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    except ImportError:
        pytest.skip("needs torchvision")
    return torchvision
