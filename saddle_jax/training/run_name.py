"""The name of a run's folder where the user gives none."""

import hashlib
import json
import re

from saddle_jax.training import code
from saddle_jax.training.config import IRRELEVANT, Config


def run_name(config: Config) -> str:
    """Joins what tells runs apart at a glance; other settings that are not the defaults give a short hash."""
    names = {name: code.short(name, value) for name, value in config.to_json().items()}
    parts = [names["dataset"], *([] if config.model == "auto" else [names["model"]]), names["method"]]
    parts += [] if config.compressor == "none" else [names["compressor"]]
    parts += [] if config.ascent == "auto" else [names["ascent"]]
    parts += [
        f"{names['topology']}{config.agents}",
        f"seeds{config.seeds}" if config.seeds else f"seed{config.seed}",
    ]
    named = ("dataset", "model", "method", "compressor", "ascent", "topology", "agents", "seed", "seeds")
    defaults = Config().to_json()
    changed = {
        name: value
        for name, value in config.to_json().items()
        if name not in (*named, *IRRELEVANT) and value != defaults[name]
    }
    if changed:
        parts.append(hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:6])
    return "-".join(map(safe, parts))


def safe(text: str) -> str:
    """Writes a setting such as gut(mu=0.5, point=mixed) for a folder: gut_mu=0.5,point=mixed."""
    return re.sub(r"[^\w.,=+-]", "_", re.sub(r"[\s'\"]", "", text)).rstrip("_")
