"""Texts of traced values: f-strings, ``%``, ``format``, ``str`` and ``repr``, which are made when an error is raised.

    f"r = {r:.3f}"        ->      Text(recipe, (r, ".3f")), which is "r = 0.750" where r is 0.75

A text is a tree of the values that it shows, as of the time when it was written, so that the values go with it into a check
(``tracer/statements/raising.py``) or to the caller. Any other use takes the text that stands for traced values.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.descriptions import REFUSED
from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.make import cast
from pullback.tracer.arrays.mixed_numbers import by_type, is_mixed, traced_tag
from pullback.tracer.arrays.tables import HOOKS
from pullback.tracer.arrays.traced import Tagged, TracedArray
from pullback.tracer.arrays.tree import Container, flatten, register
from pullback.tracer.statements.choices import Choice
from pullback.tracer.syntax.table import operator as operator_
from pullback.tracer.transforms.region import rebuild
from pullback.tracer.user_code.clauses import is_caught
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users

_FUNCTIONS: dict[str, Callable[..., str]] = {
    "mod": operator.mod, "format": str.format, "join": lambda separator, items: separator.join(items),
}  # fmt: skip
_CONVERSIONS: dict[int, Callable[[Any], Any]] = {-1: lambda x: x, ord("s"): str, ord("r"): repr, ord("a"): ascii}
_METHODS = frozenset(
    ("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix", "removesuffix", "replace",
     "rjust", "rstrip", "strip", "swapcase", "title", "translate", "upper", "zfill", "format")
)  # fmt: skip
"""The methods of a text that return a text."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes a text of values: ``function``, and ``source``, which stands for the text where the values are not at hand."""

    function: Any
    source: str

    def apply(self, values: Sequence[Any]) -> str:
        """Return the text of these values: the arguments of the function, by position and by keyword."""
        args, kwargs = values
        result: str = self.function(*args, **kwargs)
        return result


@dataclass(frozen=True, slots=True)
class Joined:
    """The function of an f-string: ``parts`` are its constants, and the conversions of its values."""

    parts: tuple[str | int, ...]

    def __call__(self, *values: Any) -> str:
        remaining = iter(values)
        texts = []
        for part in self.parts:
            texts.append(part if isinstance(part, str) else format(_CONVERSIONS[part](next(remaining)), next(remaining)))
        return "".join(texts)


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of a text."""

    name: str

    def __call__(self, text: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(text, self.name)(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Represented:
    """The function that returns the ``repr`` of an exception of a class, called ``name``, with some arguments."""

    name: str

    def __call__(self, *args: Any) -> str:
        return f"{self.name}({', '.join(map(repr, args))})"


class Text:
    """A text of traced values: what a ``recipe`` makes of ``values``. ``traced``: its arguments, unless a block joined it."""

    __slots__ = ("recipe", "traced", "values")

    def __init__(self, recipe: Recipe, values: Sequence[Any], traced: Any = None) -> None:
        self.recipe, self.values, self.traced = recipe, values, traced

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return str if is_users(sys._getframe(1).f_code) else Text

    def __str__(self) -> str:
        if self.traced is None:
            raise TraceError("a text of a traced value from a branch or loop is used; use the value instead")
        args, kwargs = self.traced
        return self.recipe.apply((list(map(_plain, args)), kwargs))

    def characters(self) -> str:
        """Return the text for a use of its characters. Raises TraceError, since the values that it shows are unknown."""
        raise TraceError(REFUSED)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash(self.characters())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str | Text) and self.characters() == other

    def __bool__(self) -> bool:
        return bool(self.characters())

    def __len__(self) -> int:
        return len(self.characters())

    def __iter__(self) -> Any:
        return iter(self.characters())

    def __contains__(self, item: Any) -> bool:
        parts = self.recipe.function.parts if isinstance(self.recipe.function, Joined) else ()
        return any(isinstance(part, str) and item in part for part in parts) or item in self.characters()

    def __getitem__(self, index: Any) -> str:
        return self.characters()[index]

    def __float__(self) -> float:
        return float(self.characters())

    def __int__(self) -> int:
        return int(self.characters())

    def __add__(self, other: Any) -> Any:
        return _of(operator.add, self.recipe.source + source_of(other), (self, other))

    def __radd__(self, other: Any) -> Any:
        return _of(operator.add, source_of(other) + self.recipe.source, (other, self))

    def __mod__(self, other: Any) -> Any:
        return _of(operator.mod, self.recipe.source, (self, other))

    def __mul__(self, count: Any) -> Any:
        return _of(operator.mul, self.recipe.source, (self, count))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(str, name):
            raise AttributeError(name)
        if name not in _METHODS:
            return getattr(self.characters(), name)
        return lambda *args, **kwargs: _of(_Method(name), self.recipe.source, (self, *args), kwargs)


def _filled(data: Any, children: Sequence[Any]) -> Any:
    return Text(data, children) if holds_unknown(children) else data.apply(children)


register(Container(type=Text, flatten=lambda text: (tuple(text.values), text.recipe), unflatten=_filled))


class Shown:
    """An array or number in a text, of a rank, and of a type of Python's if that is not empty."""

    __slots__ = ("kind", "value")

    def __init__(self, value: Any, kind: tuple[int, str]) -> None:
        self.value, self.kind = value, kind


def _shown(x: Any) -> Any:
    """Return an array as it is now, which later writes do not change, or a number."""
    if not isinstance(x, TracedArray):
        return Shown(x, (np.ndim(x), ""))
    if is_mixed(x):
        return Choice(cast(traced_tag(x), np.int64), list(map(_shown, by_type(x))))
    value = None if x.literal is not None else x.value
    copy = TracedArray(x.type, x.frame, value, weak=x.weak, literal=x.literal, loc=x.loc)
    copy.created = x.is_cell
    return Shown(copy, (x.ndim, x.weak))


def _shown_in(value: Any) -> Any:
    """Return a tree with its arrays and numbers as they are now."""
    if isinstance(value, Choice):
        return Choice(value.tag, list(map(_shown_in, value.cases)))
    if type(value) in (tuple, list):
        return type(value)(map(_shown_in, value))
    if type(value) is dict:
        return {k: _shown_in(v) for k, v in value.items()}
    leaves, tree = flatten(value, static_numbers=True)
    return value if type(value) is Text else rebuild(tree, list(map(_shown, leaves)))


def _filled_value(kind: tuple[int, str], children: Sequence[Any]) -> Any:
    (value,), (rank, weak) = children, kind
    if isinstance(value, Shown):  # of a text in a text
        return value
    if np.ndim(value) != rank:
        raise TraceError("a text of a traced value differs from row to row under pb.vmap; return the value instead")
    if isinstance(value, TracedArray):
        return Shown(value, kind)
    return _NUMBERS[weak](value) if weak else value


register(Container(type=Shown, flatten=lambda x: ((x.value,), x.kind), unflatten=_filled_value))

_NUMBERS: dict[str, Callable[[Any], Any]] = {"bool": bool, "int": int, "float": float, "complex": complex}


def source_of(text: Any) -> str:
    """Return a text, or what stands for it where the values that it shows are not at hand."""
    if type(text) is Text:
        return text.recipe.source
    return "..." if holds_unknown(text) else str(text)


def holds_unknown(value: Any) -> bool:
    """Return whether a value holds traced ones that are not known, or texts of such."""
    if isinstance(value, TracedArray):
        return not decides(value)
    if type(value) is Text or isinstance(value, Tagged | Shown):
        return True
    if isinstance(value, tuple | list):
        return any(map(holds_unknown, value))
    return any(map(holds_unknown, value.values())) if isinstance(value, dict) else _holds_unknown_attributes(value)


def _holds_unknown_attributes(value: Any) -> bool:
    return hasattr(type(value), "__dataclass_fields__") and any(map(holds_unknown, vars(value).values()))


def is_deferred(*values: Any) -> bool:
    """Return whether a text of values is to be made at run time."""
    frame = current()
    if frame is None:
        return False
    root = frame.root
    return root.rolls and not root.outcomes.follows and any(map(holds_unknown, values))


def _of(function: Any, source: str, args: Sequence[Any], kwargs: Any = None) -> Any:
    """Return ``function(*args, **kwargs)``, a text, made at run time if values are not known."""
    if not is_deferred(args, kwargs or {}):
        return function(*map(_plain, args), **(kwargs or {}))
    try:
        values = _shown_in((tuple(args), dict(kwargs or {})))
    except TraceError:
        return function(*map(_plain, args), **(kwargs or {}))
    return Text(Recipe(function, source), values, (args, kwargs or {}))


@operator_("text of")
def text_of(template: str, *values: Any) -> Any:
    """Return ``template.format(*values)``, made when it is used; its fields are ``{}`` and ``{!r}``."""
    pieces = re.split(r"(\{\}|\{!r\})", template)
    parts = [{"{}": -1, "{!r}": ord("r")}.get(piece, piece) for piece in pieces]
    recipe = Recipe(Joined(tuple(parts)), template)
    args = [x for value in values for x in (value, "")]
    return Text(recipe, _shown_in((tuple(args), {})), (args, {}))


def _plain(value: Any) -> Any:
    return str(value) if type(value) is Text else value


@operator_("text")
def text(source: str, *parts: Any) -> Any:
    """Return an f-string of its ``parts``: texts, and triples of a value, its conversion and its format."""
    parts = tuple(_with_text(*part) if type(part) is tuple else part for part in parts)
    values = [x for part in parts if type(part) is tuple for x in (part[0], part[2])]
    joined = Joined(tuple(part[1] if type(part) is tuple else part for part in parts))
    return _of(joined, source, values) if is_deferred(values) else joined(*values)


@operator_("texted")
def texted(source: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``, where this may make a text of values; a function of texts by its name."""
    called = _FUNCTIONS.get(function) if type(function) is str else function
    if called in (str, repr) and len(args) == 1:
        shown = _of_error(args[0], ord("r") if called is repr else ord("s"))
        if shown is not args[0]:
            return shown
    if called is _FUNCTIONS["join"]:
        args = (args[0], list(args[1]))
    makes_text = type(function) is str or called in (str, repr, format, ascii)
    if makes_text and called is not None and is_deferred(args, kwargs):
        if called is operator.mod:
            _check_whole(*args)
        return _of(called, source, args, kwargs)
    assert called is not None
    return called(*args, **kwargs)


_CONVERSION = re.compile(r"%(\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(?:\*|\d*))?[hlL]?(.)")
"""A conversion of a format for ``%``: its key, width and kind."""


def _check_whole(template: Any, shown: Any) -> None:
    """Emit the checks that the floats which a ``%`` format shows as whole numbers are finite, in a ``try`` statement, which may
    handle that they are not."""
    frame = current()
    if frame is None or type(template) is not str or not is_caught(frame.root.ends_act):
        return
    conversions = [m.groups() for m in _CONVERSION.finditer(template) if m[3] != "%"]
    values = shown if type(shown) is tuple else (shown,)
    if len(values) == len(conversions) and not any(key or width == "*" for key, width, _ in conversions):
        for x, (*_, kind) in zip(values, conversions, strict=True):
            if kind in "diu" and isinstance(x, TracedArray) and not x.shape and x.dtype.kind == "f":
                HOOKS["as_int"](x)


def _with_text(value: Any, conversion: int, spec: Any) -> tuple[Any, int, Any]:
    """Return a part of an f-string with the text of values for an exception that shows one."""
    shown = _of_error(value, conversion)
    return (value, conversion, spec) if shown is value else (shown, -1, spec)


def _of_error(value: Any, conversion: int) -> Any:
    """Return the text of values that a conversion makes of an exception whose arguments are such texts; another value as it
    is."""
    if not isinstance(value, BaseException) or not is_deferred(value.args):
        return value
    kind = type(value)
    if conversion == ord("r"):
        is_own = kind.__repr__ is not BaseException.__repr__
        return value if is_own else _of(_Represented(kind.__name__), f"{kind.__name__}(...)", value.args)
    is_text = kind.__str__ is BaseException.__str__ and len(value.args) == 1 and type(value.args[0]) is Text
    return value.args[0] if is_text else value
