"""Things that a user brings, by the file or the module that they are in, with or without options:

    mine.py:gradient_tracking        work/mine.py:method(beta=0.5)        package.module:Net

Options are plain values, see `calls`. <NAME> stands for an object of the Python program that made a run: it
can be listed, and not loaded. To parse a spelling imports nothing and looks at no file.
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import pathlib
import re
import symtable
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from saddle_jax.base import calls, siblings, sources
from saddle_jax.base.checks import ArgumentError, did_you_mean
from saddle_jax.base.errors import short_line
from saddle_jax.base.sources import Source

_T = TypeVar("_T")

# Somebody else's settings may say anything: what a spelling can be is bounded.
_LONGEST = 500
_FILE = r"(?:[A-Za-z]:)?[^():<>,]+\.py"
_WORD = r"[^\W\d]\w*"
_MODULE = rf"{_WORD}(?:\.{_WORD})*"
_OBJECT = re.compile(r"<[^<>]+>")
_HEAD = re.compile(rf"{_FILE}(?::.*)?|{_MODULE}:{_WORD}\s*")
_SPELLING = re.compile(rf"({_FILE}|{_MODULE}):({_WORD}(?:\(.*\))?)")

_modules: dict[str, types.ModuleType] = {}  # files that were run, by the names of their modules
_defined: dict[str, frozenset[str]] = {}  # by the same names, what each of these files defines itself


class BroughtError(ArgumentError):
    """A user's own program failed, as it was imported or called; `trace` is its traceback, without ours."""

    def __init__(self, message: str, trace: str):
        super().__init__(message)
        self.trace = trace


class Brought(NamedTuple):
    """A spelling in its parts: the place is FILE.py or a module, or "" for an object of a program."""

    place: str
    name: str
    options: dict[str, Any]

    @property
    def head(self) -> str:
        """The spelling of the thing without its options."""
        return f"{self.place}:{self.name}" if self.place else f"<{self.name}>"

    @property
    def is_file(self) -> bool:
        """Whether the thing is in a file that is named by its path."""
        return self.place.endswith(".py")


def is_brought(text: str) -> bool:
    """Tells by its form alone whether a text means something that is brought, and no name of ours."""
    return bool(_OBJECT.fullmatch(text) or _HEAD.fullmatch(text.partition("(")[0]))


def is_object(text: str) -> bool:
    """Tells whether a text stands for an object of the Python program that made a run."""
    return bool(_OBJECT.fullmatch(text))


def parse(what: str, text: str) -> Brought:
    """Returns the parts of a spelling; `what` names the setting. Nothing is imported."""
    if len(text) > _LONGEST:
        raise ArgumentError(f"{what} must be at most {_LONGEST} letters long, got {len(text)}")
    if text.isprintable():
        if _OBJECT.fullmatch(text):
            return Brought("", text[1:-1], {})
        if found := _SPELLING.fullmatch(text.strip()):
            return Brought(found[1], *calls.parse(what, found[2]))
    raise ArgumentError(
        f"{what} must be FILE.py:NAME or module:NAME, with or without (option=value, ...), got {text!r}"
    )


def load(what: str, text: str) -> Any:
    """Imports what a text spells and returns it, without calling it.

    A file is run from its path, under a module's name of its own, and once however many names are taken from
    it; its folder is searched for what it imports. Settings may be somebody else's: so that they cannot have
    `run` called of a file that says `from subprocess import run`, only what is defined there can be spelt.

    Raises:
      ArgumentError: there is no such name, or it is not defined there.
      BroughtError: it failed as it was imported.
    """
    place, name, _ = parse(what, text)
    module = _module(what, text)
    try:
        with failing_as(f"{what} {text} cannot be imported"):
            thing = getattr(module, name)
    except BroughtError as error:
        if not isinstance(error.__cause__, AttributeError):
            raise
        names = [each for each in vars(module) if not each.startswith("_")]
        raise ArgumentError(
            f"{did_you_mean(name, names)}{what} must be in {place}, got no {name!r} there"
        ) from error
    if not _is_defined_in(module, name, thing):
        raise ArgumentError(f"{what} must be defined in {place} itself, got {name!r} from elsewhere")
    return thing


def factory(what: str, text: str) -> Callable[..., Any]:
    """Loads a function or a class that makes the thing, whatever it is."""
    thing: Callable[..., Any] = load(what, text)
    if not callable(thing):
        raise ArgumentError(f"{what} {text} must be a function or a class, got {shown(thing)}")
    return thing


def make(
    what: str, text: str, kind: type | tuple[type, ...] | types.UnionType, *arguments: Any, **offered: Any
) -> Any:
    """Makes the thing that a text spells, and checks that it is of a kind.

    Args:
      what: the setting.
      text: the spelling of a factory, or of a thing that is of this kind already.
      kind: what the factory must return.
      arguments: what every factory of this kind takes.
      offered: what a factory is given if it has a parameter of that name; the spelling's options go before.

    Raises:
      ArgumentError: one line for an option that the factory does not take, or for another kind.
      BroughtError: the factory failed.
    """
    spelt = parse(what, text)
    thing = load(what, text)
    if isinstance(thing, kind) and not isinstance(thing, type):
        calls.check_options(what, spelt.head, spelt.options, [])
        return thing
    return call(what, spelt.head, factory(what, text), spelt.options, kind, *arguments, **offered)


def call(
    what: str,
    name: str,
    thing: Callable[..., Any],
    options: Mapping[str, Any],
    kind: type | tuple[type, ...] | types.UnionType,
    *arguments: Any,
    **offered: Any,
) -> Any:
    """Calls a factory that is not ours, see `make`; `name` is what it is called in messages."""
    takes = options_of(thing)
    given = {each: value for each, value in offered.items() if each in takes} | {**options}
    if not any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        calls.check_options(what, name, {**options}, list(takes)[len(arguments) :])
    try:
        inspect.signature(thing).bind(*arguments, **given)
    except TypeError as error:
        raise ArgumentError(f"{what} {name} cannot be called: {error}") from error
    except ValueError:  # some of C have no signature, and tell it themselves
        pass
    with failing_as(f"{what} {name} failed"):
        made = thing(*arguments, **given)
    if not isinstance(made, kind):
        raise ArgumentError(f"{what} {name} must return {_names(kind)}, got {shown(made)}")
    return made


def options_of(thing: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a thing by name; what is not in Python may tell none."""
    try:
        return dict(inspect.signature(thing).parameters)
    except ValueError:
        return {}


def source(what: str, text: str) -> Source:
    """Returns the file that a spelt thing is in; of a module, only the packages around it are imported."""
    spelt = parse(what, text)
    _check_no_object(what, text)
    if spelt.is_file:
        return sources.read(what, spelt.place)
    spec = _imported(what, text, importlib.util.find_spec)
    if spec is None:
        raise ArgumentError(_no_module(what, text))
    if not spec.has_location or not spec.origin:
        raise ArgumentError(f"{what} must be in a module that has a file, got {text!r}")
    return sources.read(what, spec.origin)


def at(text: str, place: str) -> str:
    """Returns a spelling of the same thing in another place."""
    return place + text[len(parse("spelling", text).place) :]


@contextlib.contextmanager
def failing_as(line: str) -> Iterator[None]:
    """Turns what a user's own program raises into a BroughtError; what it refuses itself stays one line."""
    try:
        yield
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {short_line(error)}"
        raise BroughtError(f"{line}: {reason}", _trace(error)) from error


def run_file(found: Source) -> types.ModuleType:
    """Runs a Python file as a module of its own, once, and returns the module; what it raises passes through.

    It is run again after a change of its own or of a file beside it that it imports.
    """
    place = os.path.realpath(found.path)
    beside = siblings.siblings("import", found)
    hashes = [found.sha256, *(f"{name} {each.sha256}" for name, each in beside.items())]
    key = hashlib.sha256("\n".join([place, *hashes]).encode()).hexdigest()[:16]
    name = f"_brought_{key}_{found.path.stem}"
    if name in _modules:
        return _modules[name]
    siblings.prepare(found, beside)
    module = types.ModuleType(name)
    module.__file__ = place
    sys.modules[name] = module  # dataclasses and pickles look there
    try:
        with folder_on_path(found.path):
            exec(compile(found.content, place, "exec", dont_inherit=True), vars(module))
            _defined[name] = _names_defined(found)
    except BaseException:
        del sys.modules[name]
        raise
    _modules[name] = module
    return module


@contextlib.contextmanager
def folder_on_path(path: pathlib.Path) -> Iterator[None]:
    """Lets the folder of a file be searched first for what is imported inside."""
    folder = os.path.dirname(os.path.realpath(path))
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file may have removed it
            sys.path.remove(folder)


def _names_defined(found: Source) -> frozenset[str]:
    """Returns the names that a file binds by itself, and never by an import."""
    text = importlib.util.decode_source(found.content)
    symbols = symtable.symtable(text, str(found.path), "exec").get_symbols()
    return frozenset(each.get_name() for each in symbols if each.is_assigned() and not each.is_imported())


def _is_defined_in(module: types.ModuleType, name: str, thing: Any) -> bool:
    """Tells whether a name of a module is the module's own, of what can be called by its code as well.

    An assignment may give another name to what is imported. A package may offer what its modules define. What
    has been made already and has `apply`, such as a flax module, is not called with options.
    """
    if name not in _defined.get(module.__name__, (name,)):
        return False
    while isinstance(thing, functools.partial):
        thing = thing.func
    if not callable(thing) or (hasattr(thing, "apply") and not isinstance(thing, type)):
        return True
    home = str(getattr(thing, "__module__", None))
    return home.partition(".")[0] == module.__name__.partition(".")[0]


def _module(what: str, text: str) -> types.ModuleType:
    spelt = parse(what, text)
    _check_no_object(what, text)
    if spelt.is_file:
        found = sources.read(what, spelt.place)
        with failing_as(f"{what} {text} cannot be imported"):
            return run_file(found)
    return _imported(what, text, importlib.import_module)


def _check_no_object(what: str, text: str) -> None:
    if not parse(what, text).place:
        raise ArgumentError(f"{what} {text} was made from Python objects: open it with saddle_jax.Run")


def _imported(what: str, text: str, find: Callable[[str], _T]) -> _T:
    """Calls a function of importlib for a module; says in one line if there is no such module."""
    place = parse(what, text).place
    try:
        with failing_as(f"{what} {text} cannot be imported"):
            return find(place)
    except BroughtError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{place}.".startswith(f"{cause.name}."):
            raise ArgumentError(_no_module(what, text)) from cause
        raise


def _no_module(what: str, text: str) -> str:
    return f"{what} must be in a module, got no {parse(what, text).place!r}{_nearby(text)}"


def _nearby(text: str) -> str:
    """Returns the end of a message if the module is a file here, where modules are not searched."""
    place, _, rest = text.partition(":")
    file = place.replace(".", "/") + ".py"
    return f"; for the file that is here use {file}:{rest}" if os.path.isfile(file) else ""


def _trace(error: BaseException) -> str:
    """Returns a traceback as Python prints it, without the frames of importing and our own."""
    found = traceback.TracebackException.from_exception(error)
    ours = (__file__, importlib.__file__, "<frozen importlib._bootstrap")
    rest = [frame for frame in found.stack if not frame.filename.startswith(ours)]
    found.stack = traceback.StackSummary.from_list(rest)
    lines = list(found.format())
    return "".join(lines if rest else [line for line in lines if not line.startswith("Traceback ")])


def _names(kind: Any) -> str:
    kinds = kind if isinstance(kind, tuple) else getattr(kind, "__args__", (kind,))
    return " or ".join(f"{'an' if each.__name__[0] in 'AEIOU' else 'a'} {each.__name__}" for each in kinds)


def shown(thing: Any) -> str:
    """Returns how a message shows something that is of the wrong kind: in one line, however large it is."""
    text = repr(thing)
    return text if len(text) < 100 and text.isprintable() else f"a {type(thing).__name__}"
