"""Whose a checkpoint is: what its seal says of the run, and what config.json beside it says."""

import hashlib
import json
import pathlib
from typing import Any, NamedTuple

from saddle_jax.base.reading import read_object
from saddle_jax.runs import source_files
from saddle_jax.settings.config import IRRELEVANT, Config


class Identity(NamedTuple):
    """What tells the runs of two folders apart.

    Attributes:
      settings: a hash of all settings that can change a number, apart from the epochs.
      epochs: those of the settings, and before them those that the run had before it went on for longer.
      partitions: the fingerprint of the partition of each replica.
    """

    settings: str
    epochs: list[int]
    partitions: list[str]

    def to_json(self) -> dict[str, Any]:
        """Returns what a seal says: of the epochs, those that the run has now."""
        return {**self._asdict(), "epochs": self.epochs[-1:]}

    def fault(self, sealed: Any) -> str:
        """Says why a checkpoint with this seal is of another run; nothing does if the text is empty.

        Seals of earlier versions do not say whose they are, and are taken.
        """
        if sealed is None:
            return ""
        if not isinstance(sealed, dict) or sealed.get("settings") != self.settings:
            return "it is of a run with other settings"
        if sealed.get("partitions") != self.partitions:
            return "it is of a run whose data was dealt out otherwise"
        if sealed.get("epochs") not in [[number] for number in self.epochs]:
            return "it is of a run of other epochs"
        return ""


def identity_of(workdir: pathlib.Path) -> Identity | None:
    """Returns the identity of the run in a folder, from its config.json; None if there is none.

    Settings that have their defaults are left out of the hash, so that a setting which is new in a version
    does not make a run another one.
    """
    content = read_object(workdir / "config.json")
    if content is None or not isinstance(content.get("config"), dict):
        return None
    fields, settings = Config.__dataclass_fields__, content["config"]
    told = {
        name: source_files.short(name, value)
        for name, value in settings.items()
        if name not in (*IRRELEVANT, "epochs") and name in fields and value != fields[name].default
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    before = [_get(entry, "from", "epochs") for entry in content.get("continued") or []]
    epochs = [*(number for number in before if number is not None), settings.get("epochs")]
    each = content.get("partitions") or [content.get("partition")]
    return Identity(digest, epochs, [str(_get(one, "fingerprint")) for one in each])


def _get(content: Any, *path: str) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content
