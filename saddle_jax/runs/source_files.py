"""A user's code and graph files in a run's folder: their hashes, copies, and consent to import them.

config.json lists under "code" the user's files with their hashes, and the folder code/ holds a copy of each.
A run that resumes must find the same files. To open a run later, the user names the files that may be
imported: nothing is imported because a folder says so, since the folder may come from another person.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.base.files import atomic_write, open_regular
from saddle_jax.base.reading import read_object, reading
from saddle_jax.base.registry import Spec, parse
from saddle_jax.base.user_code import Source, siblings

if TYPE_CHECKING:
    from saddle_jax.settings.settings import Settings

FOLDER = "code"
# The settings that may name a user's own code.
SETTINGS = (
    "method",
    "gradient",
    "topology",
    "model",
    "dataset",
    "objective",
    "partition",
    "faults",
    "timing",
)


class SourceRef(NamedTuple):
    """A setting that refers to user code, a graph file, or an object of a Python program."""

    setting: str
    spec: Spec

    @property
    def text(self) -> str:
        """The spec as text."""
        return str(self.spec)

    @property
    def is_data(self) -> bool:
        """Whether it is a data file, which is not imported."""
        return self.setting != "dataset" and self.spec.is_path

    @property
    def place(self) -> str:
        """The file or module."""
        return self.spec.name if self.is_data else self.spec.name.rpartition(":")[0]

    @property
    def short(self) -> str:
        """The spec with the file's name in place of its path."""
        return str(self.spec.renamed(lambda each: _without_folder(SourceRef(self.setting, each))))


class SavedSource(NamedTuple):
    """What a setting refers to, its file, and the sibling files that it imports."""

    ref: SourceRef
    source: Source
    beside: tuple[Source, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the entry in config.json."""
        own, *beside = [
            {"file": each.path.name, "sha256": each.sha256, "copy": f"{FOLDER}/{each.copy_name}"}
            for each in (self.source, *self.beside)
        ]
        return {
            "setting": self.ref.setting,
            "spec": self.ref.text,
            **own,
            **({"beside": beside} if beside else {}),
        }

    def changed(self, entry: dict[str, Any]) -> tuple[dict[str, Any], Source] | None:
        """Returns the recorded entry and the current version of the first changed file, or None."""
        recorded, found = [entry, *entry["beside"]], [self.source, *self.beside]
        for one, source in zip(recorded, found, strict=False):
            if one["sha256"] != source.sha256:
                return one, source
        # Where a sibling was added or removed, the file itself changed.
        return None if len(recorded) == len(found) else (entry, self.source)


def source_refs(config: "Settings") -> list[SourceRef]:
    """Lists the user code, files and objects in a run's settings, without reading them."""
    return [
        each
        for name in SETTINGS
        for spec in _specs(name, getattr(config, name, ""))
        for each in (SourceRef(name, part) for part in spec.walk())
        if _is_users(each)
    ]


def short(setting: str, value: Any) -> Any:
    """Returns a setting's value with file names in place of paths, since files may move."""
    if setting not in SETTINGS or not isinstance(value, str):
        return value
    for spec in _specs(setting, value):
        if any(_is_users(SourceRef(setting, each)) for each in spec.walk()):
            return SourceRef(setting, spec).short
    return value


def collect(config: "Settings") -> list[SavedSource]:
    """Reads the files that the settings refer to; objects of a Python program have none."""
    return [_saved(ref) for ref in source_refs(config) if not ref.spec.is_object]


def write_copies(workdir: pathlib.Path, kept: Sequence[SavedSource]) -> None:
    """Copies the files of a run into its folder."""
    if kept:
        (workdir / FOLDER).mkdir(exist_ok=True)
    copies = {source.copy_name: source for each in kept for source in (each.source, *each.beside)}
    for source in copies.values():
        with atomic_write(workdir / FOLDER / source.copy_name) as partial:
            partial.write_bytes(source.content)


def check_unchanged(workdir: pathlib.Path, kept: Sequence[SavedSource]) -> None:
    """Checks that a resumed run has the same files as before, possibly in another place."""
    recorded = {(each.setting, each.short): entry for each, entry in _recorded(workdir)} if kept else {}
    for each in kept:
        entry = recorded.get((each.ref.setting, each.ref.short))
        if entry is None:
            raise RunError(f"{workdir} does not say which {each.source.path.name} it was trained with")
        if changed := each.changed(entry):
            raise RunError(f"{_other_file(workdir, *changed)}; or choose another workdir")


def verified(workdir: pathlib.Path, config: "Settings", given: Sequence[str]) -> "Settings":
    """Returns the settings of an existing run, with user code replaced by files that the user trusts.

    Args:
      workdir: the run's folder, which may come from another person.
      config: its settings.
      given: FILE.py or modules that may be imported; each must be what the run was trained with.

    Graph files are read from their copies in the folder.
    """
    if not source_refs(config):
        return config
    entries = {(each.setting, each.text): entry for each, entry in _recorded(workdir)}

    def here(setting: str, spec: Spec) -> str:
        ref = SourceRef(setting, spec)
        if not _is_users(ref):
            return ref.spec.name
        if ref.spec.is_object:
            raise RunError(
                f"{workdir}: {ref.setting} {ref.text} was made from Python objects: open it with "
                "saddle_jax.Experiment"
            )
        entry = entries.get((ref.setting, ref.text))
        if entry is None:
            raise RunError(f"{workdir} does not say which {ref.place} it was trained with")
        return _copy_of(workdir, entry) if ref.is_data else _allowed(workdir, ref, entry, given)

    changes: dict[str, Any] = {}
    for name in dict.fromkeys(ref.setting for ref in source_refs(config)):
        for spec in _specs(name, getattr(config, name)):
            changes[name] = str(spec.renamed(functools.partial(here, name)))
    return dataclasses.replace(config, **changes)


def _specs(setting: str, text: str) -> list[Spec]:
    """Returns the specs of a setting; a dataset's name need not be one."""
    try:
        return [parse(setting, text)]
    except ArgumentError:
        return []


def _is_users(ref: SourceRef) -> bool:
    return ref.is_data or ref.spec.is_object or ref.spec.is_code


def _without_folder(ref: SourceRef) -> str:
    is_file = ref.is_data or (ref.spec.is_code and ref.place.endswith(".py"))
    return os.path.basename(ref.spec.name) if is_file else ref.spec.name


def _saved(ref: SourceRef) -> SavedSource:
    if ref.is_data:
        return SavedSource(ref, user_code.read(ref.setting, ref.place), ())
    source = user_code.source(ref.setting, ref.spec.name)
    is_file = ref.place.endswith(".py")  # modules belong to packages, which have versions
    return SavedSource(ref, source, tuple(siblings(ref.setting, source).values()) if is_file else ())


def _recorded(workdir: pathlib.Path) -> list[tuple[SourceRef, dict[str, Any]]]:
    """Reads and checks the entries for user code in config.json."""
    path = workdir / "config.json"
    content = read_object(path) or {}
    with reading(path):
        entries = content.get("code", [])
        for entry in (file for each in entries for file in (each, *each.setdefault("beside", []))):
            if not re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]):
                raise ValueError("code must have the sha256 of each file")
            if not entry["file"].isprintable() or entry["file"] != os.path.basename(entry["file"]):
                raise ValueError("code must have the name of each file")
            if not all(isinstance(entry.get(name, ""), str) for name in ("setting", "spec")):
                raise ValueError("code must have the setting and the spec of each file")
        return [(SourceRef(entry["setting"], parse("spec", entry["spec"])), entry) for entry in entries]


def _copy(workdir: pathlib.Path, entry: dict[str, Any]) -> pathlib.Path:
    return workdir / FOLDER / f"{entry['sha256'][:12]}-{entry['file']}"


def _copy_of(workdir: pathlib.Path, entry: dict[str, Any]) -> str:
    """Returns the path of a graph file's copy, after checking its hash."""
    path = _copy(workdir, entry)
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != entry["sha256"]:
        raise RunError(f"{path} was changed: it is no longer the graph that the run was trained on")
    return str(path)


def _allowed(workdir: pathlib.Path, ref: SourceRef, entry: dict[str, Any], given: Sequence[str]) -> str:
    """Returns the spec of user code in the matching file or module among those that the user trusts."""
    names = (os.path.basename(ref.place), _copy(workdir, entry).name)
    is_file = ref.place.endswith(".py")
    other = None
    for place in given:
        if (os.path.basename(place) in names) if is_file else place == ref.place:
            name = f"{place}:{ref.spec.name.rpartition(':')[2]}"
            other = _saved(SourceRef(ref.setting, Spec(name))).changed(entry)
            if other is None:
                return name
    if other is not None:
        raise RunError(_other_file(workdir, *other))
    raise RunError(
        f"{workdir} was trained with {ref.text}, which is imported only when you say so: "
        f"add {shlex.quote(f'--code={ref.place}')}"
    )


def _other_file(workdir: pathlib.Path, entry: dict[str, Any], found: Source) -> str:
    command = shlex.join(["diff", str(_copy(workdir, entry)), str(found.path)])
    return f"{workdir} was trained with another {found.path.name}: {command} shows the difference"
