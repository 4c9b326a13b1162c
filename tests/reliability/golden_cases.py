"""Small runs whose numbers golden.json holds, described apart from how settings are spelt.

Each names every setting that could change its numbers, so that no default stands behind it: a setting that is
missing here is one that the method does not have. Things with options are (name, options), times are in
seconds. `golden.py` alone knows how a program of today is asked for them.
"""

# What is learned, how, and what is written down; each case says what differs.
BASE = {
    "agents": 4,
    "topology": [("ring", ())],
    "mixing": "table",
    "model": "mlp",
    "norm": "evonorm",
    "precision": "float32",
    "conv_impl": "plain",
    "dataset": ("digits", {}),
    "objective": "classification",
    "subset": 256,
    "partition": "dirichlet",
    "alpha": 0.5,
    "augmentation": "none",
    "batch_size": 16,
    "epochs": 2,
    "learning_rate": 0.07,
    "schedule": "cosine",
    "warmup_epochs": 0,
    "weight_decay": 0.003,
    "gradient": ("none", {}),
    "slowmo_every": 0,
    "slowmo_beta": 0.5,
    "seed": 3,
    "seeds": [],
    "sweep": {},
    "drop": 0.0,
    "burst": 0.0,
    "symmetric": True,
    "lost_weight": "self",
    "delay": 0,
    "offline": 0.0,
    "mean_offline": 0.0,
    "offline_computes": False,
    "joins": {},
    "leaves": {},
    "latency": None,
    "bandwidth": None,
    "compute_time": None,
    "compute_sigma": 0.0,
    "steps_per_dispatch": 1,
    "devices": 1,
    "agents_per_call": 1,
    "eval_every_epochs": 1,
    "eval_agents": "always",
    "log_every_steps": 1,
    "checkpoint_every_steps": 1000,
    "keep_checkpoints": 1,
    "keep_every_epochs": 0,
    "sharpness_every_epochs": 0,
    "sharpness_images": 64,
    "diagnostics": False,
}
NO_COMPRESSOR = ("none", {})
QUANTIZE = ("quantize", {"bits": 8, "biased": False})  # rounds at random
BIASED = ("quantize", {"bits": 6, "biased": True})
TOP_K = ("top_k", {"share": 0.2})
SIGN = ("sign", {})
MOMENTUM = {"beta": 0.85, "nesterov": True}
MIXED = {"gamma": 0.9, "compressor": NO_COMPRESSOR}
GOSSIP = {**MIXED, "order": "choco"}
OF_THE_METHOD = ("of the method", {})
SAM = {"gradient": OF_THE_METHOD, "rho": 0.04, "ascent_every": 1, "ascent_reuse": False}
CONVEX = {
    "kind": "ridge",
    "dimension": 12,
    "samples": 240,
    "condition": 20.0,
    "noise": 0.1,
    "heterogeneity": 1.5,
    "groups": 4,
    "seed": 1,
}


def _case(method, *groups, own=None, **changes):
    """The settings of a run of a method, with its own options and the groups of settings that it has."""
    settings = {**BASE, "method": (method, own or {})}
    for group in groups:
        settings |= group
    return settings | changes


def _without(settings, *names):
    return {name: value for name, value in settings.items() if name not in names}


DPSGD = _case("dpsgd", MOMENTUM, GOSSIP, own={"variant": "atc"}, local_steps=1)
QGM = _case("qgm", MOMENTUM, GOSSIP, mu=0.8, local_steps=1)
NGM = _case("ngm", MOMENTUM, MIXED, self_gradient="current")
D_SADDLE = {**DPSGD, **SAM, "method": ("d_saddle", {"variant": "atc"})}
Q_SADDLE = {**QGM, **SAM, "method": ("q_saddle", {})}
N_SADDLE = {**NGM, **SAM, "method": ("n_saddle", {})}
CGA = _case("cga", MOMENTUM, MIXED, own={"margin": 0.5}, self_gradient="current")
TRACKING = {"variant": "atc", "momentum": "tracked"}
ROUNDS = {"local_steps": 3}
DFEDAVGM = _case("dfedavgm", GOSSIP, ROUNDS, own={"gossips": 1}, beta=0.85)
OBJECTS = {"schedule": "constant", "subset": 0}
DIRECTED = {"topology": [("random_digraph", (2,))], "agents": 6}

METHODS = {
    "dpsgd": DPSGD,
    "d_saddle": D_SADDLE,
    "qgm": QGM,
    "q_saddle": Q_SADDLE,
    "ngm": NGM,
    "n_saddle": N_SADDLE,
    "gradient_tracking": _case("gradient_tracking", MOMENTUM, GOSSIP, own=TRACKING),
    "d2": _case("d2", MOMENTUM, GOSSIP, own={"variant": "relay", "half": True}),
    "gut": _case("gut", MIXED, own={"point": "mixed"}, mu=0.3, beta=0.5, nesterov=False),
    "momentum_tracking": _case("momentum_tracking", GOSSIP, own={"init": "zero"}, beta=0.85),
    "sgp": _case("sgp", MOMENTUM, DIRECTED),
    "push_diging": _case("push_diging", DIRECTED, learning_rate=0.03),
    "decentlam": _case("decentlam", GOSSIP, beta=0.85),
    "cga": CGA,
    "relay_sgd": _without(
        _case("relay_sgd", MOMENTUM, own={"missing": "own"}, topology=[("path", ())]), "mixing"
    ),
    "deep_squeeze": _case("deep_squeeze", MOMENTUM, gamma=0.5, compressor=QUANTIZE),
    "dcd": _case("dcd", MOMENTUM, compressor=BIASED),
    "ecd": _case("ecd", MOMENTUM, compressor=QUANTIZE),
    "beer": _case("beer", gamma=0.2, compressor=TOP_K),
    "motef": _case("motef", own={"lam": 0.8}, gamma=0.2, compressor=TOP_K),
    "ada_gossip": _case("ada_gossip", MOMENTUM, own={"beta2": 0.99}, gamma=0.3, compressor=SIGN),
    "kgt": _case("kgt", GOSSIP, ROUNDS, own={"eta_s": 0.9}),
    "dfedavgm": DFEDAVGM,
    "dfedsam": {**DFEDAVGM, "method": ("dfedsam", {"gossips": 1}), "gradient": OF_THE_METHOD, "rho": 0.02},
}
COMPRESSED = {
    "dpsgd sign": {**DPSGD, "compressor": SIGN, "gamma": 0.4},
    "d_saddle quantized at random": {**D_SADDLE, "compressor": QUANTIZE, "gamma": 0.6},
    "qgm top-k": {**QGM, "compressor": TOP_K, "gamma": 0.3},
    "q_saddle quantized at random": {**Q_SADDLE, "compressor": QUANTIZE, "gamma": 0.6},
    "q_saddle sign in the paper's order": {**Q_SADDLE, "compressor": SIGN, "gamma": 0.4, "order": "paper"},
    "ngm quantized": {**NGM, "compressor": BIASED},
    "n_saddle sign": {**N_SADDLE, "compressor": SIGN},
    "qgm random-k": {**QGM, "compressor": ("random_k", {"share": 0.3}), "gamma": 0.3},
    "qgm low rank": {**QGM, "compressor": ("low_rank", {"rank": 2}), "gamma": 0.5},
    "cga sign": {**CGA, "compressor": SIGN},
}
TRIALS = {
    "sweep of rho and learning rate": {
        **_without(Q_SADDLE, "rho", "learning_rate"),
        "sweep": {"learning_rate": [0.03, 0.1], "rho": [0.0, 0.05]},
    },
    "seeds": {**_without(QGM, "seed"), "seeds": [0, 5, 7]},
    "seeds and drops": {**_without(QGM, "seed"), "seeds": [1, 2], "sweep": {"drop": [0.1, 0.4]}},
}
NETWORKS = {
    "lost messages": {**QGM, "drop": 0.3, "burst": 3.0, "symmetric": False, "lost_weight": "renormalise"},
    "late messages": {**DPSGD, "delay": 2},
    "agents that are offline, join and leave": {
        **QGM, "agents": 6, "offline": 0.2, "mean_offline": 2.0, "joins": {1: 3}, "leaves": {4: 5},
    },
    "times": {**DPSGD, "latency": 0.01, "bandwidth": 1e6, "compute_time": 0.05, "compute_sigma": 0.4},
    "graphs by turns": {**QGM, "topology": [("one_peer_exponential", ())]},
    "graphs joined, dense": {
        **Q_SADDLE, "topology": [("ring", ()), ("complete", ()), ("erdos_renyi", (0.6,))], "mixing": "dense",
    },
    "push-sum by turns": _case(
        "sgp", MOMENTUM, topology=[("directed_ring", ()), ("random_digraph", (2,))], agents=5
    ),
}  # fmt: skip
GRADIENTS = {
    "asam": {**QGM, "gradient": ("asam", {"rho": 0.4, "eta": 0.01})},
    "looksam": {**DPSGD, "gradient": ("looksam", {"rho": 0.1, "every": 2, "alpha": 0.6})},
    "gsam": {**NGM, "gradient": ("gsam", {"rho_max": 0.1, "rho_min": 0.02, "alpha": 0.2})},
    "esam": {**QGM, "gradient": ("esam", {"rho": 0.05, "beta": 0.6, "gamma": 0.5})},
    "sam in every other step": {**Q_SADDLE, "ascent_every": 2, "ascent_reuse": True},
}
WAYS = {
    "four devices": {**Q_SADDLE, "agents": 10, "devices": 4, "subset": 400, "topology": [("torus", (2, 5))]},
    "four devices, seeds": {**_without(QGM, "seed"), "agents": 6, "devices": 4, "seeds": [0, 1]},
    "local steps": {**QGM, "local_steps": 3},
    "slowmo": {**DPSGD, "slowmo_every": 4},
    "bfloat16": {**QGM, "precision": "bfloat16"},
    "augmented": {**QGM, "dataset": ("synthetic", {}), "augmentation": "flip_crop"},
    "resumed": {**Q_SADDLE, "compressor": QUANTIZE, "gamma": 0.6, "checkpoint_every_steps": 3,
                "killed_after": 4},
    "several steps per call": {**QGM, "steps_per_dispatch": 3, "log_every_steps": 3, "diagnostics": True,
                               "compressor": TOP_K, "gamma": 0.3},
    "step schedule and warm-up": {**QGM, "schedule": "step", "warmup_epochs": 1, "epochs": 4, "subset": 128},
    "whole batches, heavy ball": {**DPSGD, "batch_size": 0, "nesterov": False, "partition": "iid",
                                  "schedule": "exponential"},
    "sorted, constant": {**NGM, "partition": "sorted", "alpha": 2.0, "schedule": "constant",
                         "self_gradient": "mixed"},
    "cnn": {**QGM, "model": "strided_cnn", "subset": 128},
    "cnn, native": {**QGM, "model": "strided_cnn", "subset": 128, "conv_impl": "native"},
    "cnn, groupnorm, fast": {**DPSGD, "model": "strided_cnn", "subset": 128, "norm": "groupnorm",
                             "conv_impl": "fast"},
}  # fmt: skip
TASKS = {
    "convex": {
        **_without(DPSGD, "augmentation"), "dataset": ("convex", CONVEX), "objective": "ridge",
        "model": "linear", "subset": 0, "partition": "sorted", "alpha": 1.0, "beta": 0.0,
    },
    "characters": {
        **_without(QGM, "augmentation"), "dataset": ("characters", {}), "objective": "language",
        "model": "causal_mlp", "epochs": 1,
    },
    "from a file": _case(
        "method", own={"beta": 0.8}, brought="file", gradient=("estimator", {"radius": 0.05}),
        objective="loss", topology=[("graph", {"hops": 1})],
    ),
    "objects": {**_without(QGM, "augmentation"), **OBJECTS, "brought": "objects"},
    "objects with a loss, swept": {
        **_without(DPSGD, "augmentation", "beta"), **OBJECTS, "brought": "objects with a loss",
        "sweep": {"beta": [0.0, 0.6]}, "partition": "iid",
    },
    "streamed": {**_without(QGM, "augmentation"), **OBJECTS, "brought": "streamed"},
}  # fmt: skip
CASES = METHODS | COMPRESSED | TRIALS | NETWORKS | GRADIENTS | WAYS | TASKS
