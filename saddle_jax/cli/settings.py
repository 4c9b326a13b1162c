"""A run's settings as options of a command, and `saddle config`, which shows them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.settings.config import Config, check_setting, load_settings

_DEFINERS: dict[Any, Any] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}


def config_options(options: flags.FlagValues) -> None:
    """Defines --config=FILE.py[:VARIANT] and --config.FIELD=VALUE for every setting."""
    flags.DEFINE_string("config", None, "Settings file, FILE.py[:VARIANT].", flag_values=options)
    some_options(options, [field.name for field in dataclasses.fields(Config)])


def some_options(options: flags.FlagValues, names: Sequence[str]) -> None:
    """Defines --config.FIELD=VALUE for some settings alone."""
    for field in dataclasses.fields(Config):
        if field.name in names:
            meaning = field.metadata["meaning"]
            _DEFINERS[field.type](f"config.{field.name}", None, meaning, flag_values=options)


def given_options(options: flags.FlagValues) -> dict[str, Any]:
    """Returns the settings that were given, each checked by itself."""
    given = _given(options)
    with mistakes():
        for name, value in given.items():
            check_setting(name, value)
    return given


def read_options(options: flags.FlagValues) -> Config:
    """Returns the file's settings, or the defaults, with the given fields on top."""
    with mistakes():
        return dataclasses.replace(_base(options), **_given(options))


def read_for_many(options: flags.FlagValues) -> dict[str, Any]:
    """Returns the same for several methods: each field is checked, but not whether they go together."""
    with mistakes():
        base = _base(options)
    return base.to_json() | given_options(options)


def _base(options: flags.FlagValues) -> Config:
    return load_settings(options["config"].value) if options["config"].value else Config()


def _given(options: flags.FlagValues) -> dict[str, Any]:
    return {
        field.name: options[f"config.{field.name}"].value
        for field in dataclasses.fields(Config)
        if f"config.{field.name}" in options and options[f"config.{field.name}"].present
    }


def show_config(arguments: Sequence[str]) -> None:
    """Prints every setting with its value and meaning."""
    options = flags.FlagValues()
    config_options(options)
    output_options(options)
    parse(options, arguments)
    config, output = read_options(options), Output(options)
    rows, records = [["setting", "value", "meaning"]], []
    for field in dataclasses.fields(Config):
        value, meaning = getattr(config, field.name), field.metadata["meaning"]
        rows.append([field.name, repr(value), meaning])
        records.append({"setting": field.name, "value": value, "meaning": meaning})
    output.table(rows)
    output.give(records)
