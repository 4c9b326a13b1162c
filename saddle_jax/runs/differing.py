"""In which settings two runs differ, apart from those that cannot change a number."""

import json

from saddle_jax.runs import source_files
from saddle_jax.settings.config import IRRELEVANT, Config


def differing(one: Config, other: Config) -> list[str]:
    """Lists the names of the settings in which two runs differ."""
    mine, others = one.to_json(), other.to_json()
    return [
        name
        for name in mine
        if source_files.short(name, mine[name]) != source_files.short(name, others[name])
        and name not in IRRELEVANT
    ]


def differences(one: Config, other: Config) -> list[str]:
    """Lists the same as text, with the values."""
    return [
        f"{name} {json.dumps(getattr(one, name))} -> {json.dumps(getattr(other, name))}"
        for name in differing(one, other)
    ]
