"""saddle train, saddle config: run an experiment, or show its settings."""

import dataclasses
import hashlib
import importlib.util
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.training import interruption
from saddle_jax.training.config import IRRELEVANT, Config

_DEFINERS: dict[Any, Any] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}


def config_options(options: flags.FlagValues) -> None:
    """Defines --config=FILE.py[:VARIANT] and --config.FIELD=VALUE for every setting."""
    flags.DEFINE_string("config", None, "Settings file, FILE.py[:VARIANT].", flag_values=options)
    for field in dataclasses.fields(Config):
        meaning = f"{field.metadata['meaning']} (default {field.default!r})"
        _DEFINERS[field.type](f"config.{field.name}", None, meaning, flag_values=options)


def read_options(options: flags.FlagValues) -> Config:
    """The settings: the file's, or the defaults, with the given fields on top."""
    given: dict[str, Any] = {
        field.name: options[f"config.{field.name}"].value
        for field in dataclasses.fields(Config)
        if options[f"config.{field.name}"].present
    }
    with mistakes():
        base = _from_file(options["config"].value) if options["config"].value else Config()
        return dataclasses.replace(base, **given)


def _from_file(text: str) -> Config:
    name, _, variant = text.partition(":")
    path = pathlib.Path(name)
    if not path.is_file():
        raise UsageError(f"config must be a file FILE.py[:VARIANT], got {text!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"config must be a Python file, got {text!r}")
    module: Any = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # overlays import their base
    try:
        spec.loader.exec_module(module)
        config = module.get_config(variant) if variant else module.get_config()
    except Exception as error:  # it is the user's own program
        raise UsageError(f"config {text}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    finally:
        sys.path.pop(0)
    if not isinstance(config, Config):
        raise UsageError(f"{name}: get_config() must return a saddle_jax.config.Config, got {config!r}")
    return config


def run(arguments: Sequence[str]) -> int:
    """Trains; the exit status is 0 when finished, 1 when diverged, 130 when interrupted."""
    options = flags.FlagValues()
    config_options(options)
    flags.DEFINE_string(
        "workdir", None, "Folder of the run; runs/NAME else, named after the settings.", flag_values=options
    )
    flags.DEFINE_bool("quiet", False, "Print nothing but mistakes.", flag_values=options)
    flags.DEFINE_bool(
        "profile", False, "Tell what the loop costs around the steps; write a trace.", flag_values=options
    )
    _host_options(options)
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "SETTING:NUMBER,NUMBER,...: a run with each of the numbers, all in one program; several times: all "
        "combinations.",
        flag_values=options,
    )
    parse(options, arguments)
    config = read_options(options)
    if options.sweep:
        if options["config.sweep"].present:
            raise UsageError("sweep must be given once: as --sweep or as --config.sweep")
        with mistakes():
            config = dataclasses.replace(config, sweep=" ".join(options.sweep))

    from saddle_jax.cli.running import run_training, tell_unused_gpu
    from saddle_jax.devices import hosts, joining

    with mistakes():
        joining.join(
            options.coordinator,
            options.processes,
            options.process,
            timeout=options.join_timeout,
            heartbeat_timeout=options.heartbeat_timeout,
        )
    if hosts.writes() and not options.quiet:
        tell_unused_gpu()  # not before the processes have joined: it starts JAX's backends
    workdir = pathlib.Path(options.workdir or default_workdir(config))
    result = run_training(config, workdir, quiet=options.quiet, profile=options.profile)
    if result["status"] == "interrupted" and hosts.writes():
        interruption.tell(f"interrupted; the same command goes on from step {result['steps']:,}")
    return {"finished": 0, "diverged": 1, "interrupted": 130}[result["status"]]


def _host_options(options: flags.FlagValues) -> None:
    """Defines how several processes find each other, where no cluster tells them."""
    flags.DEFINE_string(
        "coordinator", None, "Of a run over several processes: HOST:PORT of process 0.", flag_values=options
    )
    flags.DEFINE_integer(
        "processes", None, "How many; 1 trains alone, whatever SLURM or MPI tells.", flag_values=options
    )
    flags.DEFINE_integer("process", None, "Which this one is, from 0.", flag_values=options)
    flags.DEFINE_integer(
        "join_timeout", 300, "Seconds to wait for the other processes.", lower_bound=1, flag_values=options
    )
    flags.DEFINE_integer(
        "heartbeat_timeout",
        100,
        "Seconds without a sign of life after which another process is taken for dead.",
        lower_bound=1,
        flag_values=options,
    )


def default_workdir(config: Config) -> str:
    """runs/ and what tells runs apart at a glance."""
    parts = [config.dataset, config.model, config.method]
    parts += [] if config.compressor == "none" else [config.compressor]
    parts += [
        f"{config.topology}{config.agents}",
        f"seeds{config.seeds}" if config.seeds else f"seed{config.seed}",
    ]
    named = ("dataset", "model", "method", "compressor", "topology", "agents", "seed", "seeds", *IRRELEVANT)
    others = {name: value for name, value in config.to_json().items() if name not in named}
    defaults = Config().to_json()
    changed = {name: value for name, value in others.items() if value != defaults[name]}
    if changed:
        parts.append(hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:6])
    return "runs/" + "-".join(parts).replace(":", "_").replace("/", "_")


def show_config(arguments: Sequence[str]) -> None:
    """Every setting with its value and meaning."""
    options = flags.FlagValues()
    config_options(options)
    parse(options, arguments)
    config = read_options(options)
    for field in dataclasses.fields(Config):
        print(f"{field.name:<24} {getattr(config, field.name)!r:<14} {field.metadata['meaning']}")
