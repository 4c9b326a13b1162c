"""Names of runs' folders from their settings, and the settings in which runs differ."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from saddle_jax.runs import source_files
from saddle_jax.settings.settings import IRRELEVANT, Settings


def run_name(config: Settings) -> str:
    """Joins the most important settings; others that are not at their defaults add a short hash."""
    names = {name: source_files.short(name, value) for name, value in config.to_json().items()}
    parts = [names["dataset"], *([] if config.model == "auto" else [names["model"]]), names["method"]]
    parts += [] if config.gradient == "auto" else [names["gradient"]]
    parts += [
        f"{names['topology']}{config.agents}",
        f"seeds{config.seeds}" if config.seeds else f"seed{config.seed}",
    ]
    named = ("dataset", "model", "method", "gradient", "topology", "agents", "seed", "seeds")
    changed = _changed(config.to_json(), *named)
    if changed:
        parts.append(_short_hash(changed))
    return "-".join(map(safe, parts))


def sweep_name(config: Settings, axes: Mapping[str, Sequence[Any]]) -> str:
    """Names the folder of a sweep after what it varies and a short hash of all settings."""
    settings = config.to_json()
    short = _short_hash(_changed(settings) | {"sweep": {name: list(values) for name, values in axes.items()}})
    return "-".join(map(safe, [settings["dataset"], "sweep", *axes, short]))


def _changed(settings: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """Returns the settings that are not at their defaults and affect the results."""
    defaults = Settings().to_json()
    return {
        name: value
        for name, value in settings.items()
        if name not in (*without, *IRRELEVANT) and value != defaults[name]
    }


def _short_hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]


def safe(text: str) -> str:
    """Makes a file name from a setting: gut(mu=0.5, point=mixed) becomes gut_mu=0.5,point=mixed."""
    return re.sub(r"[^\w.,=+-]", "_", re.sub(r"[\s'\"]", "", text)).rstrip("_")


def differing(one: Settings, other: Settings) -> list[str]:
    """Lists the names of the settings in which two runs differ."""
    mine, others = one.to_json(), other.to_json()
    return [
        name
        for name in mine
        if source_files.short(name, mine[name]) != source_files.short(name, others[name])
        and name not in IRRELEVANT
    ]


def differences(one: Settings, other: Settings) -> list[str]:
    """Lists the settings in which two runs differ, with their values, as text."""
    return [
        f"{name} {json.dumps(getattr(one, name))} -> {json.dumps(getattr(other, name))}"
        for name in differing(one, other)
    ]
