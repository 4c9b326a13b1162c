"""The syntax of specs, and registries of what they name: methods, graphs, compressors, models and so on.

    ring    torus(5, 8)    top_k(0.3)    spanning_tree(torus(2, 4))    qgm(beta=0.8)    ring+complete
    mine.py:method(beta=0.5)    package.module:Net    friends.graphml    'my (old) work/mine.py:graph'(hops=2)

A spec is a Python call whose arguments are literals, names or further specs. It is parsed with Python's
grammar and never evaluated; parsing imports nothing. `a + b` means alternate(a, b), a time-varying graph.
<NAME> stands for an object of the Python program that made a run, which cannot be loaded from settings.
"""

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import math
import re
import typing
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, NamedTuple

from saddle_jax.base import checks, user_code
from saddle_jax.base.checks import ArgumentError, shown, suggestion

_LONGEST = 500  # characters; settings may come from an untrusted file
_WORD = r"[^\W\d]\w*"
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_SIGN = r"[^\s()\[\]{},:=+<>'\"]"  # a character of an unquoted path inside brackets
_MODULE = rf"{_WORD}(?:\.{_WORD})*:{_WORD}"
_ENDING = r"\.(?:edges|graphml|npy|npz|csv|txt)"
# What Python's grammar does not have: FILE.py:NAME, module:NAME and paths.
_PLACE = rf"(?:[A-Za-z]:)?{_SIGN}+\.py:{_WORD}|{_MODULE}|{_SIGN}+{_ENDING}(?![\w.])"
_TOKEN = re.compile(rf"{_STRING}|{_PLACE}")
_INSIDE = re.compile(rf"{_WORD}|{_PLACE}")
# Outside of brackets a path may also have spaces, and any text with a slash is a path.
_HEAD = re.compile(rf"(?:[A-Za-z]:)?[^():<>,+'\"]+\.py:{_WORD}|{_MODULE}")
_PATH = re.compile(rf"[^()+'\"<>]*{_ENDING}|[^():+'\"<>]*/[^():+'\"<>]*")
_OBJECT = re.compile(r"<[^<>]+>")
_HELD = "__place"


class Name(str):
    """An unquoted word: a registered name where one is expected, and a string elsewhere."""


class Spec(NamedTuple):
    """A parsed call: the name of a factory, and its arguments, which may be specs themselves.

    >>> from saddle_jax.base.registry import Spec, parse
    >>> Spec("top_k", (0.3,)).with_option("biased", True)
    Spec(name='top_k', args=(0.3,), kwargs=(('biased', True),))
    >>> str(parse("topology", "spanning_tree( torus(2,4) )"))
    'spanning_tree(torus(2, 4))'
    """

    name: str  # of a registry, "FILE.py:NAME", "module:NAME", a path, or "<NAME>"
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def with_option(self, name: str, value: Any) -> "Spec":
        """Returns the spec with an option added or replaced."""
        return self._replace(kwargs=tuple({**dict(self.kwargs), name: value}.items()))

    def renamed(self, rename: Callable[["Spec"], str]) -> "Spec":
        """Returns the spec with new names, also for the specs inside it."""

        def inside(value: Any) -> Any:
            if isinstance(value, Spec):
                return value.renamed(rename)
            return [inside(each) for each in value] if isinstance(value, list) else value

        kwargs = tuple((key, inside(value)) for key, value in self.kwargs)
        return Spec(rename(self), tuple(map(inside, self.args)), kwargs)

    def walk(self) -> Iterator["Spec"]:
        """Yields the spec itself and all specs inside it."""
        yield self
        pending = [*self.args, *(value for _, value in self.kwargs)]
        for value in pending:
            if isinstance(value, list):
                pending.extend(value)
            elif isinstance(value, Spec):
                yield from value.walk()
            elif isinstance(value, Name):
                yield Spec(str(value))

    @property
    def is_object(self) -> bool:
        """Whether it stands for an object of a Python program."""
        return self.name.startswith("<")

    @property
    def is_code(self) -> bool:
        """Whether it is FILE.py:NAME or module:NAME."""
        return not self.is_object and not self.is_path and ":" in self.name

    @property
    def is_path(self) -> bool:
        """Whether it is the path of a data file."""
        return bool(_PATH.fullmatch(self.name) or re.search(rf"{_ENDING}$", self.name))

    def __str__(self) -> str:
        if self.is_object:
            return f"<{_call(self.name[1:-1], self)}>"
        plain = re.fullmatch(_WORD, self.name) or _HEAD.fullmatch(self.name)
        if plain or (_PATH.fullmatch(self.name) and not self.args and not self.kwargs):
            return _call(self.name, self)
        return _call(repr(self.name), self, brackets=True)


def _call(name: str, spec: Spec, brackets: bool = False) -> str:
    words = [*map(_text, spec.args), *(f"{key}={_text(value)}" for key, value in spec.kwargs)]
    return f"{name}({', '.join(words)})" if words or brackets else name


def _text(value: Any) -> str:
    """Formats an argument, where `ring` is a name and `ring()` a call."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if not isinstance(value, Spec):
        return str(value) if isinstance(value, Name) else repr(value)
    plain = _INSIDE.fullmatch(value.name)
    is_word = re.fullmatch(_WORD, value.name)
    return _call(value.name if plain else repr(value.name), value, brackets=bool(is_word or not plain))


def parse(what: str, text: str) -> Spec:
    """Parses a spec; `what` names the setting in errors."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise ArgumentError(f"{what} must be at most {_LONGEST} letters long, got {len(text)}")
    if not text.isprintable():
        raise _refusal(what, text)
    if _OBJECT.fullmatch(text):
        return _object(text)
    if _PATH.fullmatch(text):
        return Spec(text)
    value = _read(what, text)
    if not isinstance(value, Spec | Name):
        raise _refusal(what, text)
    return value if isinstance(value, Spec) else Spec(str(value))


def parse_value(what: str, text: str) -> Any:
    """Parses one argument of a spec: a literal, a name, or a further spec."""
    return _read(what, text.strip())


def is_code(text: str) -> bool:
    """Returns whether a text has the form FILE.py:NAME or module:NAME; nothing is imported."""
    try:
        return any(each.is_code for each in parse("text", text).walk())
    except ArgumentError:
        return False


def is_object(text: str) -> bool:
    """Returns whether a text stands for an object of the Python program that made a run."""
    return bool(_OBJECT.fullmatch(text))


def split(text: str, separator: str = ",") -> list[str]:
    """Splits a text at commas outside of brackets; an empty text gives an empty list."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _refusal(what: str, text: str) -> ArgumentError:
    return ArgumentError(
        f"{what} must be NAME, NAME(option=value, ...), FILE.py:NAME or module:NAME, got {text!r}"
    )


def _object(text: str) -> Spec:
    """Parses <NAME> or <NAME(option=value)>; any other content is taken as a name."""
    try:
        inner = parse("object", text[1:-1])
    except ArgumentError:
        return Spec(text)
    spec = inner._replace(name=f"<{inner.name}>")
    return spec if str(spec) == text else Spec(text)


def _read(what: str, text: str) -> Any:
    places: list[str] = []

    def hold(found: re.Match[str]) -> str:
        if found[0][0] in "'\"":
            return found[0]
        places.append(found[0])
        return f"{_HELD}{len(places) - 1}"

    head = _HEAD.match(text)
    start = hold(head) if head else ""
    plain = start + _TOKEN.sub(hold, text[head.end() :] if head else text)
    unquoted = re.sub(_STRING, "", plain)
    try:
        # Python normalises fullwidth letters to ASCII; a name must be what it looks like.
        if _HELD in text or len(text) > _LONGEST or unicodedata.normalize("NFKC", unquoted) != unquoted:
            raise ValueError("no name")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's syntax warnings about input that is refused below
            tree = ast.parse(plain, mode="eval").body
        return _value(tree, places)
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError):
        raise _refusal(what, text) from None


def _value(node: ast.expr, places: list[str]) -> Any:
    match node:
        case ast.Name(id=word):
            return Spec(places[int(word.removeprefix(_HELD))]) if word.startswith(_HELD) else Name(word)
        case ast.Call(func=ast.Name() | ast.Constant(value=str()) as function, args=args, keywords=words):
            name = function.value if isinstance(function, ast.Constant) else _value(function, places)
            kwargs = tuple((str(word.arg), _value(word.value, places)) for word in words)
            if len(dict(kwargs)) < len(kwargs) or not all(word.arg for word in words):
                raise ValueError("an option twice, or without a name")
            if not str(name).isprintable() or not name:
                raise ValueError("no name")
            args = [_value(each, places) for each in args]
            return Spec(name.name if isinstance(name, Spec) else str(name), tuple(args), kwargs)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return Spec("alternate", (*_turns(left, places), *_turns(right, places)))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element, places) for element in elements]
    value = ast.literal_eval(node)
    if not isinstance(value, str | int | float | bool | None) or isinstance(node, ast.BinOp):
        raise ValueError("no plain value")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("no number that can be written")
    return value


def _turns(node: ast.expr, places: list[str]) -> tuple[Any, ...]:
    value = _value(node, places)
    if not isinstance(value, Spec | Name):
        raise ValueError("no graph")
    return value.args if isinstance(node, ast.BinOp) and isinstance(value, Spec) else (value,)


def parameters_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a function or class by name; none if it has no signature, as in C."""
    for eval_str in (True, False):
        try:
            return dict(inspect.signature(factory, eval_str=eval_str).parameters)
        except ValueError:
            break
        except Exception:  # a quoted annotation may name anything
            continue
    return {}


class Registry(MutableMapping[str, Callable[..., Any]]):
    """Factories by name, each given as "module:name" and imported when it is first used.

        METHODS = Registry("method", {"qgm": "saddle_jax.methods.qgm:qgm", ...}, context=("topology", ...))
        METHODS.make("qgm(beta=0.8)", topology=sj.ring(8), learning_rate=0.1)

    Installed packages add names by entry points:

        [project.entry-points."saddle_jax.methods"]
        theirs = "their_package.methods:theirs"

    Args:
      what: the setting that takes these specs.
      places: the package's own factories, "module:name" by name.
      kinds: the classes, as "module:name", of which a result must be an instance; empty allows anything.
      context: the parameters that the program passes and a spec cannot. A factory gets those that it has, and
        the positional arguments of a spec skip them.
      group: the entry-point group.
      read: the "module:name" of a function that makes an object from a data file, a `user_code.Source`.
    """

    everywhere: ClassVar[dict[str, "Registry"]] = {}

    def __init__(
        self,
        what: str,
        places: Mapping[str, str],
        kinds: Collection[str] = (),
        context: Collection[str] = (),
        group: str = "",
        read: str = "",
    ):
        self.what, self.context, self.group = what, tuple(context), group
        self._ours: dict[str, Any] = dict(places)
        self._kinds, self._read = tuple(kinds), read
        if kinds or group:  # those that the arguments of other specs may name
            Registry.everywhere[what] = self

    @property
    def ours(self) -> tuple[str, ...]:
        """The package's own names."""
        return tuple(self._ours)

    @property
    def installed(self) -> tuple[str, ...]:
        """The names that installed packages add."""
        return tuple(self._installed)

    def package_of(self, name: str) -> str:
        """Returns the package that registers a name, with its version."""
        found = self._installed[name].dist
        return f"{found.name} {found.version}" if found else "an unknown package"

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._ours:
            entry = self._installed[name]
            with user_code.failing_as(f"{name} of {self.package_of(name)} cannot be imported"):
                return entry.load()  # type: ignore[no-any-return]
        if isinstance(self._ours[name], str):
            self._ours[name] = _imported(self._ours[name])
        found: Callable[..., Any] = self._ours[name]
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._installed

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._installed

    def __len__(self) -> int:
        return len(self._ours) + len(self._installed)

    def __setitem__(self, name: str, factory: Callable[..., Any]) -> None:
        self._ours[name] = factory

    def __delitem__(self, name: str) -> None:
        del self._ours[name]

    def parse(self, text: str | Spec, also: Collection[str] = ()) -> Spec:
        """Parses a spec and checks that its name is registered or one of `also`; imports nothing."""
        spec = parse(self.what, text) if isinstance(text, str) else text
        if not (spec.is_code or spec.is_object or (self._read and spec.is_path) or spec.name in also):
            checks.known(self.what, spec.name, [*also, *self])
        return spec

    def check(self, text: str | Spec, also: Collection[str] = (), whole: bool = True) -> Spec:
        """Parses a spec and checks the options of the package's own factories; no other code is imported.

        With `whole`, all required options must be present.
        """
        spec = self.parse(text, also)
        if spec.name in self._ours:
            parameters = parameters_of(self[spec.name])
            for name, value in self._bound(spec, self[spec.name], whole).items():
                self._inside(parameters.get(name), value, lambda registry, inner: registry.check(inner))
        elif spec.name in also:
            self._bound(spec, lambda: None)
        return spec

    def is_ours(self, spec: Spec | str) -> bool:
        """Returns whether all names in a spec are the package's own, so that their options are known."""
        spec = parse(self.what, spec) if isinstance(spec, str) else spec
        return not any(
            each.is_code or each.is_object or (self._read and each.is_path) or each.name in self._installed
            for each in spec.walk()
        )

    def factory(self, spec: Spec | str) -> Callable[..., Any]:
        """Imports and returns the factory that a spec names."""
        thing = self.load(spec)
        if not callable(thing):
            raise ArgumentError(f"{self.what} {spec} must be a function or a class, got {shown(thing)}")
        return thing  # type: ignore[no-any-return]

    def load(self, spec: Spec | str) -> Any:
        """Imports what a spec names, without calling it."""
        spec = self.parse(spec) if isinstance(spec, str) else spec
        if spec.is_object:
            raise ArgumentError(
                f"{self.what} {spec} was made from Python objects: open it with saddle_jax.Experiment"
            )
        if spec.is_code:
            return user_code.load(self.what, spec.name)
        checks.known(self.what, spec.name, self)
        return self[spec.name]

    def options(self, spec: Spec | str) -> dict[str, inspect.Parameter]:
        """Returns the parameters of a spec's factory that the spec may set."""
        return self._own(self.factory(spec))

    def defaults(self, spec: Spec | str) -> dict[str, Any]:
        """Returns the default values of the options of a spec's factory."""
        return {
            name: each.default for name, each in self.options(spec).items() if each.default is not each.empty
        }

    def given(self, spec: Spec | str) -> dict[str, Any]:
        """Returns the arguments of a spec by parameter name, unevaluated."""
        spec = self.parse(spec) if isinstance(spec, str) else spec
        return self._bound(spec, self.factory(spec), whole=False)

    def with_options(self, spec: Spec, options: Mapping[str, Any]) -> Spec:
        """Returns a spec with other values of options, which need not be literals: they may be arrays."""
        given = {**self.given(spec), **options}
        return spec._replace(args=(), kwargs=tuple(given.items()))

    def arguments(self, spec: Spec) -> dict[str, Any]:
        """Returns the arguments of a spec by parameter name, with the specs among them made into objects."""
        factory = self.factory(spec)
        parameters, given = parameters_of(factory), self._bound(spec, factory, whole=False)
        return {
            name: self._inside(parameters.get(name), value, lambda registry, inner: registry.make(inner))
            for name, value in given.items()
        }

    def make(self, spec: Any, **context: Any) -> Any:
        """Makes the object that a spec describes; an instance of the right class is returned unchanged.

        Raises:
          ArgumentError: an unknown name or option, or a result of another class.
          UserCodeError: the user's own function failed.
        """
        spec = self.parse(spec) if isinstance(spec, str) else spec
        if not isinstance(spec, Spec):
            return self._checked(spec, f"{self.what} must be")
        if self._read and spec.is_path:
            return _imported(self._read)(user_code.read(self.what, spec.name))
        thing = self.load(spec)
        if self._kinds and not isinstance(thing, type) and isinstance(thing, self._classes()):
            self._bound(spec, lambda: None)  # an instance takes no options
            return thing
        return self.call(spec, self.factory(spec), **context)

    def call(self, spec: Spec, factory: Callable[..., Any], **context: Any) -> Any:
        """Calls a factory with the arguments of a spec, and with those of the context that it takes."""
        parameters = parameters_of(factory)
        values = {name: value for name, value in context.items() if name in parameters}
        for name, value in self._bound(spec, factory).items():
            values[name] = self._inside(
                parameters.get(name), value, lambda r, inner: r.make(inner, **context)
            )
        # By keyword where possible: wrappers such as partial objects pass keywords on unchanged.
        by_place = [
            each for each in parameters.values() if each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY)
        ]
        args: tuple[Any, ...] = ()
        if any(each.name in values for each in by_place):
            known = {name: values.pop(name) for name in parameters if name in values}
            bound = inspect.BoundArguments(inspect.Signature([*parameters.values()]), known)
            args, values = bound.args, {**bound.kwargs, **values}
        is_ours, line = spec.name in self._ours, f"{self.what} {spec.name} failed"
        with contextlib.nullcontext() if is_ours else user_code.failing_as(line):
            thing = factory(*args, **values)
        return self._checked(thing, f"{self.what} {spec.name} must return")

    def _own(self, factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
        found = parameters_of(factory)
        return {name: each for name, each in found.items() if name not in self.context}

    def _bound(self, spec: Spec, factory: Callable[..., Any], whole: bool = True) -> dict[str, Any]:
        """Binds the arguments of a spec to a factory's parameters, or raises an ArgumentError."""
        own = self._own(factory)
        named = [n for n, each in own.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        takes = f"{self.what} {spec.name} takes {', '.join(named) or 'no options'}"
        if not any(each.kind is each.VAR_KEYWORD for each in own.values()):
            for option in dict(spec.kwargs):
                if option not in named:
                    raise ArgumentError(f"{suggestion(option, named)}{takes}, got option {option!r}")
        try:
            bound = inspect.Signature([*own.values()]).bind_partial(*spec.args, **dict(spec.kwargs))
        except TypeError as error:
            raise ArgumentError(f"{takes}, got {str(spec)!r}: {error}") from error
        given = dict(bound.arguments)
        given |= next(
            (given.pop(n) for n, each in own.items() if each.kind is each.VAR_KEYWORD and n in given), {}
        )
        for name, value in given.items():
            if name in own and own[name].annotation is bool and not isinstance(value, bool):
                raise ArgumentError(f"{name} must be True or False, got {str(value)!r}")
        missing = [n for n in named if own[n].default is inspect.Parameter.empty and n not in given]
        if whole and missing:
            raise ArgumentError(
                f"{self.what} {spec.name} must be given {', '.join(missing)}, got {str(spec)!r}"
            )
        return given

    def _inside(
        self, parameter: inspect.Parameter | None, value: Any, use: Callable[["Registry", Spec], Any]
    ) -> Any:
        """Applies `use` to calls in an argument, and to names where a registered one is expected."""
        if isinstance(value, list) or (isinstance(value, tuple) and not isinstance(value, Spec)):
            return type(value)(self._inside(parameter, each, use) for each in value)
        if not isinstance(value, Spec | Name):
            return value
        every = Registry.everywhere
        registry = None
        if parameter is not None:  # by its annotation, else by its name
            annotated = (each for each in every.values() if each._takes(parameter.annotation))
            registry = next(annotated, every.get(parameter.name))
        if isinstance(value, Name):
            return use(registry, Spec(str(value))) if registry else str(value)
        if registry is None:
            registry = next((each for each in every.values() if value.name in each), self)
        return use(registry, value)

    def _checked(self, thing: Any, line: str) -> Any:
        if self._kinds and not isinstance(thing, self._classes()):
            names = " or ".join(
                f"{'an' if each.__name__[0] in 'AEIOU' else 'a'} {each.__name__}" for each in self._classes()
            )
            raise ArgumentError(f"{line} {names}, got {shown(thing)}")
        return thing

    def _classes(self) -> tuple[type, ...]:
        return tuple(map(_imported, self._kinds))

    def _takes(self, annotation: Any) -> bool:
        """Returns whether an annotation such as `Operator | None` allows one of this registry's classes."""
        kinds = [typing.get_origin(each) or each for each in (annotation, *typing.get_args(annotation))]
        places = {f"{getattr(each, '__module__', '')}:{getattr(each, '__qualname__', '')}" for each in kinds}
        return not places.isdisjoint(self._kinds)

    @functools.cached_property
    def _installed(self) -> dict[str, importlib.metadata.EntryPoint]:
        """The entry points of the group whose names are valid and not taken already."""
        found: dict[str, importlib.metadata.EntryPoint] = {}
        for entry in importlib.metadata.entry_points(group=self.group) if self.group else ():
            reason = "is no name" if not entry.name.isidentifier() else ""
            if entry.name in (*self._ours, *found):
                reason = "is taken"
            if reason:
                package = entry.dist.name if entry.dist else entry.value
                warnings.warn(
                    f"{self.group}: {entry.name!r} of the package {package} is ignored: it {reason}",
                    stacklevel=2,
                )
            else:
                found[entry.name] = entry
        return found


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
