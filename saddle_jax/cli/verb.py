"""Verbs are decorated functions whose options are absl flags; parsing, help and printing are shared here.

    @verb("Look at runs", "DIR...", integer("images", 1024, "Training images to measure on.", 1))
    def sharpness(options, out, *folders):
        \"\"\"Measure the largest eigenvalue of the Hessian at a run's checkpoints.\"\"\"

argparse would lose an optional argument after an option, and refuse --diagnostics=true.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TextIO

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError, printable
from saddle_jax.base.files import check_named_output
from saddle_jax.training.progress import is_drawable

Define = Callable[..., Any]
THEMES = ("Begin", "Train and compare", "Look at runs", "The paper", "Data, and your own")
PICTURES = ("png", "pdf", "svg")


def _later(define: Define) -> Callable[..., Define]:
    return functools.partial(functools.partial, define)


# Options: each is called like absl's own, with name, default and description, then bounds for integers.
text = _later(flags.DEFINE_string)
integer = _later(flags.DEFINE_integer)
number = _later(flags.DEFINE_float)
boolean = _later(flags.DEFINE_bool)
choice = _later(flags.DEFINE_enum)
items = _later(flags.DEFINE_list)
repeated = _later(flags.DEFINE_multi_string)

_OUTPUT = (
    boolean("quiet", False, "Print the results alone, without notes and progress."),
    boolean("json", False, "Print the results as JSON alone."),
)
# For verbs that open existing runs.
OPENING = (
    text("data_dir", None, "Folder of the runs' data (default: TFDS_DATA_DIR; no run's folder names it)."),
    repeated("code", [], "FILE.py or module that runs were trained with and that may be imported."),
)
PICTURE = choice("picture", PICTURES[0], PICTURES, "Format of the picture of curves.")


@dataclasses.dataclass(frozen=True)
class Verb:
    """The verb of `saddle NAME`: "DIR..." takes one or more arguments, "[NAME]" one or none.

    `settings` says whether it takes all settings of runs, or which ones, and `without` excludes some. An
    option of its own replaces a setting of the same name.
    """

    name: str
    theme: str
    run: Callable[..., int | None]
    arguments: tuple[str, ...]
    options: tuple[Define, ...]
    settings: bool | tuple[str, ...]
    without: tuple[str, ...]
    example: str
    devices: int

    @property
    def meaning(self) -> str:
        """The first paragraph of the function's docstring."""
        return " ".join((self.run.__doc__ or "").split("\n\n")[0].split())

    def flag_values(self, whole: bool = True) -> flags.FlagValues:
        """Returns the options of the verb at their defaults; without the run settings if not `whole`."""
        values = flags.FlagValues()  # type: ignore[no-untyped-call]
        if self.settings is True:
            flags.DEFINE_string("config", None, "Settings file, FILE.py[:VARIANT].", flag_values=values)
        for define in (*self.options, *_OUTPUT):
            define(flag_values=values)
        if self.settings is True and whole:
            _define_settings(values, [one.name for one in setting_fields() if one.name not in self.without])
        elif self.settings is not True:
            _define_settings(values, self.settings or ())
        return values


VERBS: dict[str, Verb] = {}
_FILES = ("train", "look", "figures", "analysis", "papers", "check", "data")


def load() -> dict[str, Verb]:
    """Returns all verbs, in the order of the help."""
    for name in _FILES:
        importlib.import_module(f"saddle_jax.cli.{name}")
    return VERBS


def verb(
    theme: str,
    *declared: str | Define,
    settings: bool | tuple[str, ...] = False,
    without: tuple[str, ...] = (),
    example: str = "",
    devices: int = 1,
    into: dict[str, Verb] = VERBS,
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Declares a function as the verb of its name: `data_show` is `saddle data show`."""

    def declare(function: Callable[..., int | None]) -> Callable[..., int | None]:
        name = function.__name__.rstrip("_").replace("_", " ")
        arguments = tuple(one for one in declared if isinstance(one, str))
        options = tuple(one for one in declared if not isinstance(one, str))
        into[name] = Verb(name, theme, function, arguments, options, settings, without, example, devices)
        return function

    return declare


def find(words: Sequence[str], verbs: Mapping[str, Verb] = VERBS) -> tuple[Verb, list[str]]:
    """Returns the verb of one or two words that a command line begins with, and the remaining words."""
    for length in (2, 1):
        if (name := " ".join(words[:length])) in verbs and len(words) >= length:
            return verbs[name], [*words[length:]]
    first, second = [*words, "", ""][:2]
    if below := below_verb(first):
        checks.known(f"{first} VERB", second, below)
    checks.known("VERB", first, first_words())
    raise AssertionError(words)


def below_verb(first: str) -> list[str]:
    """Lists the second words after a first one: list, prepare and so on for data."""
    return [name.partition(" ")[2] for name in VERBS if name.startswith(f"{first} ")]


def first_words() -> list[str]:
    """Lists the first words of all verbs."""
    return list(dict.fromkeys(name.partition(" ")[0] for name in VERBS))


def call(words: Sequence[str], verbs: Mapping[str, Verb] = VERBS) -> int:
    """Runs the verb that a command line names, or prints its help; returns the exit status."""
    if words[0] not in verbs and words[1:] in (["-h"], ["--help"]) and below_verb(words[0]):
        print(_help_below(words[0]), end="")
        return 0
    found, rest = find(words, verbs)
    if {"-h", "--help"} & {*rest}:
        print(help_of(found), end="")
        return 0
    options = found.flag_values()
    values = parse(options, rest, found.arguments)
    return found.run(options, Output(options), *values) or 0


def parse(options: flags.FlagValues, words: Sequence[str], arguments: Sequence[str] = ()) -> list[str]:
    """Parses options; returns the positional arguments, after checking their number."""
    for word in words:
        option, _, name = word.lstrip("-").partition("=")
        if option == "flagfile" and not os.path.isfile(name):  # reading a pipe could block
            raise ArgumentError(f"flagfile must be a file, got {name!r}")
        _define_option(options, option)
    try:
        values = options(["saddle", *words])[1:]
    except flags.UnrecognizedFlagError as error:
        found = checks.nearest(error.flagname, names_of(options))
        if "method" in options:
            from saddle_jax.settings.settings import Settings, option_meant

            found = option_meant(Settings(), error.flagname) or found
        hint = f"; did you mean '--{found}'?" if found else ""
        raise ArgumentError(f"there is no option --{error.flagname} here{hint}") from error
    except flags.Error as error:
        raise ArgumentError(str(error).splitlines()[0]) from error
    except UnicodeDecodeError as error:
        raise ArgumentError("flagfile must be a text of options, one in a line, got no text") from error
    least = sum(not name.startswith("[") for name in arguments)
    most = math.inf if any("..." in name for name in arguments) else len(arguments)
    if not least <= len(values) <= most:
        names = " ".join(arguments) or "nothing"
        raise ArgumentError(f"arguments must be {names} and options, got {' '.join(values) or 'nothing'}")
    return values


def _define_option(options: flags.FlagValues, name: str) -> None:
    """Defines --method.rho=0.05, an option of what a setting names, where there is such a setting."""
    whose, dot, _ = name.partition(".")
    if dot and whose in options and name not in options:
        from saddle_jax.settings.sweep import SPEC_SETTINGS

        if whose in SPEC_SETTINGS:
            flags.DEFINE_string(name, None, f"Option of {whose}.", flag_values=options)


def refuse(options: flags.FlagValues, names: Sequence[str], why: str) -> None:
    """Raises an error if one of these options was set although it has no effect."""
    for name in names:
        if options[name].present:
            raise ArgumentError(f"{name} must {why}")


def names_of(options: flags.FlagValues) -> list[str]:
    """Lists the options of a verb, without those that absl adds and aliases."""
    return [name for name in options if options[name].name == name and name not in ("flagfile", "undefok")]


# Settings of runs as options.


def setting_fields() -> tuple[dataclasses.Field[Any], ...]:
    """Returns the settings of a run, with their defaults and descriptions."""
    from saddle_jax.settings.settings import Settings

    return dataclasses.fields(Settings)


def _define_settings(values: flags.FlagValues, names: Sequence[str]) -> None:
    """Defines --NAME=VALUE for settings, without defaults, since those come from the settings file."""
    kinds: dict[type, Define] = {
        str: flags.DEFINE_string,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_bool,
    }
    for field in setting_fields() if names else ():
        if field.name in names and field.name not in values:
            define = flags.DEFINE_multi_string if field.name == "sweep" else kinds[type(field.default)]
            define(field.name, None, field.metadata["meaning"], flag_values=values)


def settings_of(options: flags.FlagValues, own: Collection[str] = (), **defaults: Any) -> Any:
    """Returns the settings of --config=FILE.py and the command line, made once.

    Options of what a setting names, --method.rho=0.05, are written into that setting.

    Args:
      options: of a verb.
      own: the names of its own options, which are no settings here, and of settings that it varies.
      defaults: settings that differ from the usual defaults.
    """
    from saddle_jax.settings.settings import Settings, load_settings
    from saddle_jax.settings.sweep import in_settings

    file = load_settings(options.config) if "config" in options and options.config else None
    names = [field.name for field in setting_fields() if field.name in options and field.name not in own]
    given = {name: options[name].value for name in names if options[name].present}
    if "sweep" in given:  # an option that may be repeated
        given["sweep"] = " ".join(given["sweep"] or [])
    varied = options_of(options, own)
    named = {name: value for name, value in options_of(options).items() if name not in varied}
    if file and not given and not named:
        return file
    base = file.to_json() if file else {field.name: field.default for field in setting_fields()} | defaults
    return Settings(**{**base, **given, **in_settings({**base, **given}, named)})


def options_of(options: flags.FlagValues, settings: Collection[str] | None = None) -> dict[str, Any]:
    """Returns the given options of what settings name, such as --method.rho=0.05, of some or all."""
    given = {name: options[name].value for name in options if "." in name and options[name].present}
    return {
        name: value for name, value in given.items() if settings is None or name.split(".")[0] in settings
    }


# Help.

WIDTH, _INDENT = 80, 26
_VALUES = {"int": "N", "float": "NUMBER", "comma separated list of strings": "A,B,..."}
_PLACES = {"workdir": "DIR", "data_dir": "DIR", "folder": "DIR", "output": "FILE", "plot": "FILE"}
# What absl adds to the descriptions of enumerations and repeated options.
_ADDED = re.compile(r"^<[^>]*>: |;\s+repeat this option to specify a list of values$")


def overview() -> str:
    """Returns the overview of all verbs by topic."""
    parts = ["usage: saddle VERB [arguments] [options]"]
    for theme in THEMES:
        shown = [_entry(one.name, one.meaning, 17) for one in VERBS.values() if one.theme == theme]
        parts.append("\n".join([theme, *shown]))
    parts.append(
        "saddle VERB --help shows the arguments and options of a verb. saddle --version\n"
        "prints the version, saddle --completion=bash|zsh|fish a script for the shell."
    )
    return "\n\n".join(parts) + "\n"


def _help_below(first: str) -> str:
    shown = [_entry(name, VERBS[name].meaning, 17) for name in VERBS if name.startswith(f"{first} ")]
    return "\n".join([f"usage: saddle {first} VERB [arguments] [options]", "", *shown, ""])


def help_of(one: Verb) -> str:
    """Returns the help of a verb: usage, description, example, options, and the names of settings."""
    options = one.flag_values()
    parts = [
        " ".join(["usage: saddle", one.name, *one.arguments, "[options]"]),
        *textwrap.wrap(one.meaning, WIDTH),
    ]
    parts += ["", f"Example: saddle {one.example}"] if one.example else []
    parts += [f"See also: saddle {one.name} {name} --help" for name in below_verb(one.name)]
    own = names_of(one.flag_values(whole=False))
    parts += ["", "Options", *(_option(options[name]) for name in own)]
    if one.settings is True:
        names = ", ".join(name for name in names_of(options) if name not in own)
        parts += ["", "Settings, as --NAME=VALUE (saddle settings NAME explains one)"]
        parts += textwrap.wrap(names, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(parts) + "\n"


def _option(flag: flags.Flag[Any]) -> str:
    value = flag.default
    if flag.boolean:
        usage = f"--[no]{flag.name}" if value or value is None else f"--{flag.name}"
    elif isinstance(flag, flags.EnumFlag):
        usage = f"--{flag.name}={'|'.join(flag.parser.enum_values)}"
    else:
        usage = f"--{flag.name}={_PLACES.get(flag.name) or _VALUES.get(flag.flag_type(), 'TEXT')}"
    meaning = _ADDED.sub("", flag.help or "")
    if len(usage) > WIDTH - _INDENT:
        usage, names = f"--{flag.name}=NAME", usage.partition("=")[2].split("|")
        meaning = f"{meaning.rstrip('.')}: {', '.join(names)}."
    if value not in (None, "", False, []) and "default" not in meaning:
        shown = ",".join(value) if isinstance(value, list) else str(value)
        meaning = f"{meaning.rstrip('.')} (default: {shown.lower() if flag.boolean else shown})."
    return _entry(usage, meaning[:1].upper() + meaning[1:], _INDENT)


def _entry(left: str, right: str, indent: int) -> str:
    """Formats two columns; a long left entry has its own line."""
    first = f"  {left:<{indent}}" if len(left) < indent else f"  {left}\n{'':{indent + 2}}"
    return first + f"\n{'':{indent + 2}}".join(textwrap.wrap(right, WIDTH - indent - 2) or [""])


# Output files.


def picture_option(what: str, default: str, name: str = "output") -> Define:
    """Declares an option that names the file of a picture."""
    return text(name, None, f"{what}: a .png, .pdf or .svg file (default: {default}).")


def picture_file(name: str | None, default: str | pathlib.Path, option: str = "output") -> pathlib.Path:
    """Returns the file of a picture, checked before anything is computed for it."""
    path = pathlib.Path(name or default)
    if path.suffix.removeprefix(".") not in PICTURES:
        raise ArgumentError(f"{option} must end in .png, .pdf or .svg, got {str(path)!r}")
    check_named_output(name, option)
    return path


@contextlib.contextmanager
def writing(option: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """A context for writing the file of an option, whose errors name the option."""
    try:
        yield
    except RunError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise ArgumentError(
            f"{option} must be a file that can be written, got {str(path)!r}: {reason}"
        ) from error


def check_folder(name: str) -> pathlib.Path:
    """Returns the existing folder that an argument DIR names."""
    if not os.path.isdir(name):
        raise ArgumentError(f"DIR must be a folder, got {name!r}")
    return pathlib.Path(name)


# Printing.

_STYLES = {
    "red": ("FAILS", "diverged", "diverged*", "contradicted", "broken", "violated"),
    "yellow": ("running", "interrupted", "missing", "unreadable", "not shown"),
    "green": ("holds", "finished", "shown", "ok", "yes"),
}
_STYLE_OF = {word: style for style, words in _STYLES.items() for word in words}


class Output:
    """Prints a verb's results according to --quiet and --json.

    Attributes:
      is_json: whether standard output is one JSON value.
      is_silent: whether only results are printed.
    """

    def __init__(self, options: flags.FlagValues):
        self.is_json: bool = options.json
        self.is_silent: bool = options.quiet or options.json

    def note(self, text: str = "") -> None:
        """Prints a line beside the results: progress, files written, next steps."""
        if not self.is_silent:
            print(text, flush=True)

    def say(self, text: str = "") -> None:
        """Prints a result as text."""
        if not self.is_json:
            print(text, flush=True)

    def table(self, rows: Sequence[Sequence[str]], title: str = "", spare: Sequence[str] = ()) -> None:
        """Prints a table; on a narrow terminal it drops the columns `spare`, as far as needed.

        `spare` has their headings, the least important first. Files and pipes get all columns.
        """
        from saddle_jax.report.tables import as_text

        if self.is_json:
            return
        if title:
            self.say(title)
        if (width := _width_of(sys.stdout)) is None or importlib.util.find_spec("rich") is None:
            self.say(as_text(rows))
            return
        columns, left_out = [*zip(*rows, strict=True)], []
        for name in spare:
            if sum(max(map(len, column)) + 2 for column in columns) - 2 > width and name in rows[0]:
                columns = [column for column in columns if column[0] != name]
                left_out.append(name)
        _draw(columns)
        if left_out:
            self.note(f"(left out here: {', '.join(left_out)}; a wider terminal or --json shows all)")

    def give(self, value: Any) -> None:
        """Prints the JSON value if --json is set."""
        if self.is_json:
            print(json.dumps(_finite(value), indent=1, allow_nan=False), flush=True)


def _draw(columns: Sequence[Sequence[str]]) -> None:
    """Draws a table that fits the terminal, with coloured statuses."""
    from rich import box, console, table
    from rich.text import Text

    drawn = table.Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for head, *_ in columns:
        drawn.add_column(Text(head), overflow="fold")
    for row in [*zip(*columns, strict=True)][1:]:
        drawn.add_row(*(Text(printable(cell), _STYLE_OF.get(cell, "")) for cell in row))
    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    console.Console(file=sys.stdout, highlight=False, color_system=colours).print(drawn)


def _finite(content: Any) -> Any:
    """Replaces infinities and NaN, such as those of a diverged run, by None for JSON."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextlib.contextmanager
def doing(text: str) -> Iterator[None]:
    """Shows a status line within the context, if the output is a terminal."""
    passing(text)
    try:
        yield
    finally:
        passing()


def passing(text: str = "") -> None:
    """Shows a status line that the next one replaces, if the output is a terminal."""
    if is_drawable(sys.stderr):
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _width_of(stream: TextIO) -> int | None:
    """Returns a terminal's width in columns, or COLUMNS if that is set; None for files and pipes."""
    try:
        if not stream.isatty():
            return None
    except ValueError:  # it is closed
        return None
    return shutil.get_terminal_size().columns
