"""A page for each method and estimator, made from its docstring and from what `saddle methods` measures."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import convex_curve
import equations

from saddle_jax.methods import METHODS
from saddle_jax.report import algorithms
from saddle_jax.report.algorithms import Option
from saddle_jax.sam import GRADIENTS

# How the papers write the names of their methods.
TITLES = {
    "dpsgd": "D-PSGD", "d_saddle": "D-SADDLe", "qgm": "QGM", "q_saddle": "Q-SADDLe", "ngm": "NGM",
    "n_saddle": "N-SADDLe", "gradient_tracking": "Gradient tracking", "d2": "D2", "gut": "GUT",
    "momentum_tracking": "Momentum tracking", "sgp": "SGP", "push_diging": "Push-DIGing",
    "decentlam": "DecentLaM", "cga": "CGA", "relay_sgd": "RelaySGD", "deep_squeeze": "DeepSqueeze",
    "dcd": "DCD-PSGD", "ecd": "ECD-PSGD", "beer": "BEER", "motef": "MoTEF", "ada_gossip": "AdaGossip",
    "kgt": "K-GT", "dfedavgm": "DFedAvgM", "dfedsam": "DFedSAM", "slowmo": "SlowMo", "saddle": "SADDLe",
    "plain": "Plain gradient", "sam": "SAM", "asam": "ASAM", "looksam": "LookSAM", "gsam": "GSAM",
    "esam": "ESAM", "lesam": "LESAM",
}  # fmt: skip
_BESIDE = "dpsgd"


def method_pages() -> dict[str, tuple[str, str]]:
    """Returns the title and the text of every method's page, by the page's address."""
    found = convex_curve.measured()
    return {f"method/{name}.md": (_title(name), _method_page(name, found)) for name in METHODS.ours}


def gradient_pages() -> dict[str, tuple[str, str]]:
    """Returns the title and the text of every estimator's page, by the page's address."""
    return {f"gradient/{name}.md": (_title(name), _gradient_page(name)) for name in GRADIENTS}


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _method_page(name: str, found: dict[str, Any]) -> str:
    facts, factory = algorithms.facts_of_method(name), METHODS.factory(name)
    base = inspect.unwrap(factory)
    parts = (factory,) if base.__name__ == name else (factory, base, GRADIENTS.factory("sam"))
    texts = [_equations(each) for each in parts]
    rows = [
        ("sends", f"{facts.sends} (models per link and step, uncompressed)"),
        ("computes", f"{_count(facts.passes, 'backward pass', 'es')} of an agent in a step"),
        ("remembers", _count(facts.state, "model")),
        ("requires of the graph", facts.requires or "nothing"),
        *([("has a theory for", facts.theory)] if facts.theory else []),
        ("exact on heterogeneous data", "yes, with a constant learning rate" if facts.exact else "no"),
        ("citation", facts.citation or "-"),
    ]
    options = algorithms.options_of_method(name)
    topology = "" if facts.graph.startswith("ring") else f" --topology={facts.graph.partition('(')[0]}"
    return "\n\n".join(
        [
            f"# {_title(name)}",
            *texts,
            "## What it costs and requires",
            f"Measured on {facts.graph}, with the defaults.\n\n{_table(rows)}",
            "## On a convex task",
            _curve(name, found),
            "## Use it",
            f"```sh\nbin/saddle train --method='{algorithms.text_of(name)}'{topology}\n```",
            f"In Python it is [`sj.{name}`](../api/methods.md#saddle_jax.{name}).",
            "## Options",
            _options(options, "method"),
        ]
    )


def _curve(name: str, found: dict[str, Any]) -> str:
    if name not in found["methods"]:
        return f"Not measured yet: `.venv/bin/python docs/pictures/convex_curves.py {name}` does it."
    settings = found["methods"][name]["settings"]
    given = " ".join(f"--{key}={value}" for key, value in settings.items())
    drawn = convex_curve.draw(found, name, _BESIDE)
    beside = "" if name == _BESIDE else f" The grey line is {_title(_BESIDE)}."
    return (
        f"The distance of the consensus model from the known optimum of ridge regression, for ten agents "
        f"whose data differs.{beside} The curve of an exact method falls until float32 has no more digits; "
        f"that of any other method stops before.\n\n{drawn}\n\n"
        f"The settings are:\n\n```sh\nbin/saddle train {given}\n```"
    )


def _gradient_page(name: str) -> str:
    facts, factory = algorithms.facts_of_gradient(name), GRADIENTS.factory(name)
    text = (inspect.getdoc(factory) or "").splitlines()[0] if name == "plain" else _equations(factory)
    rows = [
        ("computes", f"{_count(facts.passes, 'backward pass', 'es')} per gradient"),
        ("remembers", _count(facts.state, "model")),
        ("citation", facts.citation or "-"),
    ]
    public = "plain_gradient" if name == "plain" else name
    return "\n\n".join(
        [
            f"# {_title(name)}",
            text,
            "## What it costs",
            _table(rows),
            "## Use it",
            f"```sh\nbin/saddle train --method=qgm --gradient={name}\n```",
            f"In Python it is [`sj.{public}`](../api/gradients.md#saddle_jax.{public}). "
            "`sj.saddle(method, gradient)` puts it into any method.",
            "## Options",
            _options(algorithms.options_of_gradient(name), "gradient"),
        ]
    )


def _equations(factory: Callable[..., Any]) -> str:
    return equations.from_docstring(inspect.getdoc(sys.modules[factory.__module__]) or "")


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "| what | how much |\n|---|---|\n" + "\n".join(f"| {left} | {right} |" for left, right in rows)


def _options(options: Sequence[Option], kind: str) -> str:
    if not options:
        return f"This {kind} has no options."
    rows = []
    for option in options:
        default = "must be given" if option.required else f"`{option.default!r}`"
        rows.append(f"| `--{kind}.{option.name}` | {default} | {_escaped(option.meaning)} |")
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def _count(number: float, what: str, plural: str = "s") -> str:
    return f"{number:g} {what}{'' if number == 1 else plural}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_").replace("<", "&lt;")
