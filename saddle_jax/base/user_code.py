"""User code: files and modules that settings name, imported, hashed and copied with what they import.

Each version of a file is executed once, as a module of its own. The same bytes are executed, hashed and
copied. Settings may come from an untrusted file: only names that a file or package itself defines can be
loaded.
"""

import ast
import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import os
import pathlib
import symtable
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from saddle_jax.base.checks import ArgumentError, suggestion
from saddle_jax.base.errors import one_line, short_line

_T = TypeVar("_T")

_LARGEST = 64 * 2**20  # bytes of a file, which is copied into the folder of every run
_OURS = "saddle_jax"  # a folder of this name may lie beside a user's file

_read: contextvars.ContextVar[dict[str, "Source"] | None] = contextvars.ContextVar("read", default=None)
_modules: dict[str, types.ModuleType] = {}  # executed files by module name
_defined: dict[str, frozenset[str]] = {}  # by module name, the names that the file itself defines
_imported: dict[str, str] = {}  # hashes of their imported sibling files by module name


class UserCodeError(ArgumentError):
    """User code failed when it was imported or called; `trace` is its traceback without our frames."""

    def __init__(self, message: str, trace: str):
        super().__init__(message)
        self.trace = trace


# ---- reading files ----


@dataclasses.dataclass(frozen=True)
class Source:
    """A file's path and the content that was read."""

    path: pathlib.Path
    sha256: str
    content: bytes = dataclasses.field(repr=False)

    @property
    def copy_name(self) -> str:
        """The name of a copy in a run's folder, distinct for two files of the same name."""
        return f"{self.sha256[:12]}-{self.path.name}"


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """Reads each file only once within the context, so that a run never sees two versions of a file."""
    if _read.get() is not None:
        yield
        return
    token = _read.set({})
    try:
        yield
    finally:
        _read.reset(token)


def read(what: str, name: str | os.PathLike[str]) -> Source:
    """Reads a file that the setting `what` names."""
    path = pathlib.Path(name)
    place = os.path.realpath(path)
    known = _read.get()
    if known is not None and place in known:
        return dataclasses.replace(known[place], path=path)
    if not os.path.isfile(path):  # reading a pipe could block
        raise ArgumentError(f"{what} must name a file that exists, got {str(name)!r}")
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise ArgumentError(
            f"{what} must be in a file that can be read, got {str(name)!r}: {reason}"
        ) from error
    if len(content) > _LARGEST:
        raise ArgumentError(
            f"{what} must be in a file of at most {_LARGEST // 2**20} MiB, got {str(name)!r}, which is larger"
        )
    source = Source(path, hashlib.sha256(content).hexdigest(), content)
    if known is not None:
        known[place] = source
    return source


# ---- importing ----


def load(what: str, place: str) -> Any:
    """Imports and returns FILE.py:NAME or module:NAME, without calling it; `what` names the setting.

    Settings may come from an untrusted file, so only names that are defined there can be loaded: not `run`
    from a file with `from subprocess import run`.

    Raises:
      ArgumentError: there is no such name, or it is not defined there.
      UserCodeError: the import raised an error.
    """
    file, name = _parts(place)
    module = _module(what, place)
    try:
        with failing_as(f"{what} {place} cannot be imported"):
            thing = getattr(module, name)
    except UserCodeError as error:
        if not isinstance(error.__cause__, AttributeError):
            raise
        names = [each for each in vars(module) if not each.startswith("_")]
        raise ArgumentError(
            f"{suggestion(name, names)}{what} must be in {file}, got no {name!r} there"
        ) from error
    if not _is_defined_in(module, name, thing):
        raise ArgumentError(f"{what} must be defined in {file} itself, got {name!r} from elsewhere")
    return thing


def source(what: str, place: str) -> Source:
    """Reads the file of FILE.py:NAME or module:NAME; only the parent packages of a module are imported."""
    file, _ = _parts(place)
    if file.endswith(".py"):
        return read(what, file)
    spec = _found(what, place, importlib.util.find_spec)
    if spec is None:
        raise ArgumentError(_no_module(what, place))
    if not spec.has_location or not spec.origin:
        raise ArgumentError(f"{what} must be in a module that has a file, got {place!r}")
    return read(what, spec.origin)


@contextlib.contextmanager
def failing_as(line: str) -> Iterator[None]:
    """Converts errors raised by user code into a UserCodeError, except an ArgumentError."""
    try:
        yield
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {short_line(error)}"
        raise UserCodeError(f"{line}: {reason}", _trace(error)) from error


def run_file(found: Source) -> types.ModuleType:
    """Executes a Python file once as a module of its own, and returns the module; its errors propagate.

    It is executed again after it or a sibling file that it imports has changed.
    """
    place = os.path.realpath(found.path)
    beside = siblings("import", found)
    hashes = [found.sha256, *(f"{name} {each.sha256}" for name, each in beside.items())]
    key = hashlib.sha256("\n".join([place, *hashes]).encode()).hexdigest()[:16]
    name = f"_user_{key}_{found.path.stem}"
    if name in _modules:
        return _modules[name]
    _prepare(found, beside)
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
    """Puts the folder of a file first on the import path within the context."""
    folder = os.path.dirname(os.path.realpath(path))
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file may have removed it
            sys.path.remove(folder)


def _names_defined(found: Source) -> frozenset[str]:
    """Returns the names that a file defines, and never imports."""
    text = importlib.util.decode_source(found.content)
    symbols = symtable.symtable(text, str(found.path), "exec").get_symbols()
    return frozenset(each.get_name() for each in symbols if each.is_assigned() and not each.is_imported())


def _is_defined_in(module: types.ModuleType, name: str, thing: Any) -> bool:
    """Returns whether a module itself defines a name, and for a callable also the code behind it.

    The latter excludes assignments such as `mine = subprocess.run`. A package may re-export what its modules
    define. Instances with `apply`, such as flax modules, are allowed, because they are not called.
    """
    if name not in _defined.get(module.__name__, (name,)):
        return False
    while isinstance(thing, functools.partial):
        thing = thing.func
    if not callable(thing) or (hasattr(thing, "apply") and not isinstance(thing, type)):
        return True
    home = str(getattr(thing, "__module__", None))
    return home.partition(".")[0] == module.__name__.partition(".")[0]


def _parts(place: str) -> tuple[str, str]:
    file, _, name = place.rpartition(":")
    return file, name


def _module(what: str, place: str) -> types.ModuleType:
    file, _ = _parts(place)
    if file.endswith(".py"):
        found = read(what, file)
        with failing_as(f"{what} {place} cannot be imported"):
            return run_file(found)
    return _found(what, place, importlib.import_module)


def _found(what: str, place: str, find: Callable[[str], _T]) -> _T:
    """Calls a function of importlib; an ArgumentError says if there is no such module."""
    module, _ = _parts(place)
    try:
        with failing_as(f"{what} {place} cannot be imported"):
            return find(module)
    except UserCodeError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}."):
            raise ArgumentError(_no_module(what, place)) from cause
        raise


def _no_module(what: str, place: str) -> str:
    """Writes the message for a missing module, with a hint if the current folder has a file of that name."""
    module, name = _parts(place)
    file = module.replace(".", "/") + ".py"
    nearby = f"; for the file that is here use {file}:{name}" if os.path.isfile(file) else ""
    return f"{what} must be in a module, got no {module!r}{nearby}"


def _trace(error: BaseException) -> str:
    """Formats a traceback without the frames of importlib and of this package."""
    found = traceback.TracebackException.from_exception(error)
    ours = (os.path.dirname(__file__), importlib.__file__, "<frozen importlib._bootstrap")
    rest = [frame for frame in found.stack if not frame.filename.startswith(ours)]
    found.stack = traceback.StackSummary.from_list(rest)
    lines = list(found.format())
    return "".join(lines if rest else [line for line in lines if not line.startswith("Traceback ")])


# ---- sibling files that a user's file imports: they count as part of it ----


def siblings(what: str, found: Source) -> dict[str, Source]:
    """Returns the files in the same folder that a Python file imports, directly or not, by module name.

    Imports are found by parsing the files: nothing is imported.
    """
    folder = pathlib.Path(os.path.realpath(found.path)).parent
    known: dict[str, Source] = {}
    pending = [found]
    while pending:
        for name in _imports(pending.pop().content):
            path = _file(folder, name)
            if path is not None and name not in known and path != pathlib.Path(os.path.realpath(found.path)):
                known[name] = read(what, path)
                pending.append(known[name])
    return dict(sorted(known.items()))


def _prepare(found: Source, beside: dict[str, Source]) -> None:
    """Removes stale sibling modules, so that a file about to be executed imports their current versions."""
    for name, sibling in beside.items():
        if name in sys.modules:
            place = getattr(sys.modules[name], "__file__", None)
            if place is None or os.path.realpath(place) != os.path.realpath(sibling.path):
                raise ArgumentError(
                    f"{found.path} imports {name}, and another {name} is imported already: rename "
                    f"{sibling.path.name}"
                )
            if _imported.get(name, sibling.sha256) != sibling.sha256:
                del sys.modules[name]
        _imported[name] = sibling.sha256


def _imports(content: bytes) -> Iterator[str]:
    """Yields the modules that a file may import, with their parent packages: a.b gives a and a.b."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are shown when the file is executed
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # so is a syntax error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in full:
            words = [] if name.partition(".")[0] == _OURS else name.split(".")
            yield from (".".join(words[: count + 1]) for count in range(len(words)))


def _file(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    place = folder.joinpath(*name.split("."))
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in candidates if path.is_file()), None)
