"""``pullback.tree``: nested containers of arrays as a flat list of leaves, and back.

Containers are tuples, lists, dicts, OrderedDicts, defaultdicts, namedtuples, dataclasses and the classes given to ``register``:
the same that transformed functions take and return. Leaves are NumPy arrays and scalars, Python numbers and, inside a
transformed function, traced arrays. Everything else (None, strings, functions) belongs to the structure and has no leaves. All
functions here work inside a transformed function as well as outside.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np

from pullback.tracer import TracedArray, TreeDef, rebuild
from pullback.tracer import flatten as _flatten_labelled
from pullback.tracer.arrays.tree import Container, Identity, bare, static_key
from pullback.tracer.arrays.tree import register as _register

__all__ = ["Unravel", "flatten", "leaves", "map", "ravel", "register", "structure", "unflatten"]

T = TypeVar("T")
C = TypeVar("C", bound=type)

_NUMBERS = (bool, int, float, complex)


def _flatten(tree: Any, key: Callable[[Any], Any] = static_key) -> tuple[list[Any], TreeDef]:
    found, shape = _flatten_labelled(tree, key=key)
    return found, bare(shape)


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """``(leaves, structure)`` of a tree. Structures compare and hash, and print with ``*`` for each leaf.

    Raises TraceError for a value in the structure that cannot be hashed.
    """
    return _flatten(tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, depth first, dicts in their own order."""
    return _flatten(tree, key=Identity)[0]


def structure(tree: Any) -> TreeDef:
    """The structure of a tree; ``unflatten(structure(tree), leaves(tree))`` is an equal tree."""
    return _flatten(tree)[1]


def unflatten(structure: TreeDef, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves, which may be any objects. Raises ValueError if there are too few or many."""
    found = list(leaves)
    if len(found) != structure.count:
        raise ValueError(f"{len(found)} leaves for a structure of {structure.count}: {structure}")
    return rebuild(structure, found)


def map(f: Callable[..., Any], tree: T, *rest: T) -> T:
    """The tree of ``f(leaf, *others)`` for each leaf of ``tree``; ``others`` are the leaves in the same places of ``rest``.

        params = pb.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    Dicts are matched by key, whatever their order. Raises ValueError, naming the place, where structures differ.
    """
    first, shape = _flatten(tree, key=Identity)
    others = []
    for number, other in enumerate(rest, 2):
        found, its_shape = _flatten(other, key=Identity)
        others.append(list(_matched(shape, its_shape, iter(found), "", number)))
    made: T = rebuild(shape, [f(*row) for row in zip(first, *others, strict=True)])
    return made


def ravel(tree: T) -> tuple[np.ndarray[Any, Any], Unravel[T]]:
    """``(vector, unravel)``: all leaves in one vector, and the function that makes a tree of such a vector.

    The vector is a copy, of the common dtype of the leaves (float64 if there are none). ``unravel`` gives each leaf its own
    shape and dtype back, as a copy. Both are differentiable inside a transformed function. So a dict of parameters goes
    through an optimiser of vectors:

        start, unravel = pb.tree.ravel({"w": np.zeros(3), "b": 0.0})

        @pb.value_and_grad
        def loss(vector):
            p = unravel(vector)
            return np.mean((X @ p["w"] + p["b"] - y) ** 2)

        best = unravel(scipy.optimize.minimize(loss, start, jac=True).x)

    Raises TypeError, naming the place, for a leaf that is not of numbers.
    """
    found, shape = _flatten(tree)
    specs = tuple(_Leaf.of(x, place) for x, place in zip(found, places(shape, "")))
    kinds = {s.dtype for s in specs}
    dtype = np.result_type(*kinds).newbyteorder("=") if kinds else np.dtype(float)
    parts = [_as_array(x).reshape(-1).astype(dtype) for x in found]
    return np.concatenate(parts) if parts else np.zeros(0), Unravel(shape, specs)


def register(cls: C, flatten: Callable[[Any], tuple[Sequence[Any], Any]], unflatten: Callable[[Any, Sequence[Any]], Any]) -> C:
    """Make a class a container; returns the class. Subclasses are registered by themselves.

    ``flatten(value)`` gives ``(children, data)``: the trees inside, and what else is needed, which is compared and hashed.
    ``unflatten(data, children)`` makes the value again, of other children. Objects of the class are then arguments and
    results of transformed functions, and gradients come in it.

        pb.tree.register(Affine, lambda a: ((a.matrix, a.shift), a.name), lambda name, parts: Affine(*parts, name=name))

    Raises TypeError for a class that is a leaf or a container already; a dataclass may be registered.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register takes a class, not {cls!r}")
    if issubclass(cls, np.ndarray | np.generic | TracedArray | bool | int | float | complex):
        raise TypeError(f"{cls.__name__} is an array or a number: a leaf")
    if cls in (tuple, list, dict, OrderedDict, defaultdict) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        raise TypeError(f"{cls.__name__} is a container already")
    _register(Container(type=cls, flatten=flatten, unflatten=unflatten))
    return cls


class Unravel(Generic[T]):
    """Makes a tree of a vector, as ``ravel`` says. ``size``: the elements of the vector; ``structure``: that of the tree."""

    __slots__ = ("_specs", "size", "structure")

    def __init__(self, structure: TreeDef, specs: tuple[_Leaf, ...]) -> None:
        self._specs = specs
        self.structure = structure
        self.size = sum(s.size for s in specs)

    def __call__(self, vector: Any) -> T:
        """The tree. Raises ValueError for anything but a vector of ``size`` elements."""
        given = _as_array(vector)
        if given.shape != (self.size,):
            raise ValueError(f"unravel takes a vector of shape ({self.size},) for {self.structure}, got shape {given.shape}")
        found, start = [], 0
        for spec in self._specs:
            found.append(spec.take(given[start : start + spec.size]))
            start += spec.size
        tree: T = rebuild(self.structure, found)
        return tree

    def __reduce__(self) -> tuple[Any, ...]:
        return Unravel, (self.structure, self._specs)

    def __repr__(self) -> str:
        return f"<unravel of {self.size} elements into {self.structure}>"


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    """What a leaf was: ``kind`` is the type of a Python or NumPy scalar, None for an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: type | None

    @staticmethod
    def of(leaf: Any, place: str) -> _Leaf:
        array = _as_array(leaf)
        if array.dtype.kind in "OSUMmT" or array.dtype.names is not None:
            raise TypeError(f"the leaf at tree{place} is of dtype {array.dtype}: only numbers can be ravelled")
        weak = {k.__name__: k for k in _NUMBERS}.get(getattr(leaf, "weak", ""))
        kind = weak or (None if isinstance(leaf, np.ndarray | TracedArray) else type(leaf))
        return _Leaf(dtype=array.dtype, shape=array.shape, kind=kind)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def take(self, part: Any) -> Any:
        """The leaf from its part of a vector."""
        made = part.reshape(self.shape).astype(self.dtype)
        if isinstance(made, TracedArray):
            made.weak = self.kind.__name__ if self.kind in _NUMBERS else ""
            return made
        if self.kind in _NUMBERS:
            return made.item()
        return made if self.kind is None else made[()]


def _as_array(x: Any) -> Any:
    return x if isinstance(x, TracedArray) else np.asarray(x)


def _steps(tree: TreeDef) -> list[str]:
    """How each child is written after its parent."""
    if tree.kind in ("namedtuple", "dataclass"):
        return [f".{k}" for k in tree.keys]
    return [f"[{k!r}]" for k in tree.keys]


def places(tree: TreeDef, place: str) -> Iterator[str]:
    """Where each leaf stands, as Python would write it."""
    if tree.kind == "leaf":
        yield place
    for step, child in zip(_steps(tree), tree.children):
        yield from places(child, place + step)


def _matched(tree: TreeDef, other: TreeDef, found: Iterator[Any], place: str, number: int) -> Iterator[Any]:
    """The leaves ``found`` of a tree in the order of another one of the same structure."""

    def differ(a: Any, b: Any) -> ValueError:
        return ValueError(f"trees differ at tree{place}: {a} in the first, {b} in tree {number}")

    if tree.kind != other.kind or tree.type is not other.type:
        raise differ(_title(tree), _title(other))
    if tree.kind == "leaf":
        yield next(found)
        return
    if tree.kind == "dict":
        keys, its_keys = list(tree.keys), list(other.keys)
        missing, extra = [k for k in keys if k not in its_keys], [k for k in its_keys if k not in keys]
        if missing or extra:
            raise differ(f"keys {keys}", f"keys {its_keys}")
        order = [its_keys.index(k) for k in keys]
    elif len(tree.children) != len(other.children):
        raise differ(f"{len(tree.children)} children", f"{len(other.children)} children")
    elif tree.kind in ("static", "named", "registered") and not _is_same(tree.data, other.data):
        raise differ(_title(tree), _title(other))
    else:
        order = list(range(len(tree.children)))
    parts = [[next(found) for _ in range(child.count)] for child in other.children]
    for position, step, child in zip(order, _steps(tree), tree.children):
        yield from _matched(child, other.children[position], iter(parts[position]), place + step, number)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two parts of structures are one, or equal."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(_is_same(x, y) for x, y in zip(a, b, strict=True))
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))


def _title(tree: TreeDef) -> str:
    match tree.kind:
        case "leaf":
            return "a leaf"
        case "static" | "named":
            return repr(tree.data)
        case "registered":
            return f"a {tree.type.__name__} with {tree.data[1]!r}"
    return f"a {tree.type.__name__}"
