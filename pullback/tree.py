"""Nested containers of arrays as a flat list of leaves, and back.

Containers are tuples, lists, dicts, OrderedDicts, defaultdicts, namedtuples, dataclasses and the classes passed to
``register``: the same that transformed functions take and return. Leaves are NumPy arrays and scalars, Python numbers and,
inside a transformed function, traced arrays. Everything else (None, strings, functions) belongs to the structure and has no
leaves. All functions here work inside a transformed function as well as outside.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer import TracedArray, TreeDef, rebuild
from pullback.tracer import flatten as _flatten_labelled
from pullback.tracer.arrays.tree import Container, Identity, bare, static_key
from pullback.tracer.arrays.tree import register as _register

__all__ = ["Unravel", "flatten", "leaves", "map", "ravel", "register", "structure", "unflatten"]

T = TypeVar("T")
C = TypeVar("C", bound=type)

_NUMBERS = (bool, int, float, complex)


def _flatten(tree: Any, key: Callable[[Any], Any] = static_key) -> tuple[list[Any], TreeDef]:
    result, shape = _flatten_labelled(tree, key=key)
    return result, bare(shape)


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Return the leaves and the structure of a tree.

    Parameters
    ----------
    tree : array, number or container of them
        The tree.

    Returns
    -------
    leaves : list
        The leaves, depth first, dicts in their own order.
    structure : TreeDef
        The structure, which can be compared and hashed, and prints with ``*`` for each leaf.

    Raises
    ------
    TraceError
        For a value in the structure that cannot be hashed.

    See Also
    --------
    unflatten : The inverse.
    ravel : All leaves in one vector.

    Examples
    --------
    >>> pb.tree.flatten({"w": np.ones(2), "b": 0.5})
    ([array([1., 1.]), 0.5], dict(w=*, b=*))
    """
    return _flatten(tree)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, depth first, dicts in their own order.

    Parameters
    ----------
    tree : array, number or container of them
        The tree.

    Returns
    -------
    list
        The leaves.

    See Also
    --------
    flatten : Leaves and structure.

    Examples
    --------
    >>> pb.tree.leaves(((1, 2), {"a": 3}))
    [1, 2, 3]
    """
    return _flatten(tree, key=Identity)[0]


def structure(tree: Any) -> TreeDef:
    """Return the structure of a tree.

    Parameters
    ----------
    tree : array, number or container of them
        The tree.

    Returns
    -------
    TreeDef
        The structure: ``unflatten(structure(tree), leaves(tree))`` is an equal tree.

    Raises
    ------
    TraceError
        For a value in the structure that cannot be hashed.

    See Also
    --------
    flatten : Leaves and structure.

    Examples
    --------
    >>> pb.tree.structure((1, {"a": 2})) == pb.tree.structure((3, {"a": 4}))
    True
    """
    return _flatten(tree)[1]


def unflatten(structure: TreeDef, leaves: Sequence[Any]) -> Any:
    """Return the tree of a structure with these leaves, which may be any objects.

    Parameters
    ----------
    structure : TreeDef
        The structure.
    leaves : sequence
        The leaves, in the order of `leaves`.

    Returns
    -------
    container
        The tree.

    Raises
    ------
    ValueError
        If there are too few leaves or too many.

    See Also
    --------
    flatten : The inverse.

    Examples
    --------
    >>> pb.tree.unflatten(pb.tree.structure({"a": 0, "b": 0}), ["x", "y"])
    {'a': 'x', 'b': 'y'}
    """
    values = list(leaves)
    if len(values) != structure.count:
        raise ValueError(f"{len(values)} leaves for a structure of {structure.count}: {structure}")
    return rebuild(structure, values)


def map(f: Callable[..., Any], tree: T, *rest: T) -> T:
    """Return the tree of ``f(leaf, *others)`` for each leaf of a tree and the leaves in the same positions of other trees.

    Parameters
    ----------
    f : callable
        A function of one leaf of each tree.
    tree : array, number or container of them
        The first tree, whose containers the result has.
    *rest : array, number or container of them
        Other trees of the same structure. Dicts are matched by key, whatever their order.

    Returns
    -------
    container
        The tree of the results.

    Raises
    ------
    ValueError
        If structures differ; the message names the position.

    See Also
    --------
    leaves : The leaves alone.

    Examples
    --------
    A step of gradient descent on a dict of parameters:

    >>> params, gradients = {"w": np.ones(2), "b": 1.0}, {"w": np.ones(2), "b": 5.0}
    >>> pb.tree.map(lambda p, g: p - 0.1 * g, params, gradients)
    {'w': array([0.9, 0.9]), 'b': 0.5}
    """
    first, shape = _flatten(tree, key=Identity)
    others = []
    for position, other in enumerate(rest, 2):
        its_leaves, its_shape = _flatten(other, key=Identity)
        others.append(list(_matched(shape, its_shape, iter(its_leaves), "", position)))
    result: T = rebuild(shape, [f(*row) for row in zip(first, *others, strict=True)])
    return result


def ravel(tree: T) -> tuple[np.ndarray[Any, Any], Unravel[T]]:
    """Return all leaves of a tree in one vector, and the function that rebuilds a tree from such a vector.

    Both are differentiable inside a transformed function. With them an optimiser of vectors can work on a dict of parameters.

    Parameters
    ----------
    tree : array, number or container of them
        The tree; its leaves are numeric.

    Returns
    -------
    vector : array, shape (n,)
        A copy of the leaves, of their common dtype (float64 if there are none).
    unravel : Unravel
        The function that gives each leaf its own shape and dtype back, as a copy.

    Raises
    ------
    TypeError
        For a leaf that is not numeric; the message names the position.

    See Also
    --------
    Unravel : The function.
    flatten : Leaves and structure.

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> x = np.linspace(0, 1, 5)
    >>> y = 2 * x + 1
    >>> start, unravel = pb.tree.ravel({"slope": 0.0, "offset": 0.0})
    >>> @pb.value_and_grad
    ... def loss(vector):
    ...     p = unravel(vector)
    ...     return np.mean((p["slope"] * x + p["offset"] - y) ** 2)
    >>> best = unravel(minimize(loss, start, jac=True, tol=1e-12).x)
    >>> {name: round(value, 4) for name, value in best.items()}
    {'slope': 2.0, 'offset': 1.0}
    """
    values, shape = _flatten(tree)
    specs = tuple(_Leaf.of(x, path) for x, path in zip(values, leaf_paths(shape, "")))
    kinds = {s.dtype for s in specs}
    dtype = np.result_type(*kinds).newbyteorder("=") if kinds else np.dtype(float)
    parts = [_as_array(x).reshape(-1).astype(dtype) for x in values]
    return np.concatenate(parts) if parts else np.zeros(0), Unravel(shape, specs)


def register(cls: C, flatten: Callable[[Any], tuple[Sequence[Any], Any]], unflatten: Callable[[Any, Sequence[Any]], Any]) -> C:
    """Make a class a container and return it. Subclasses must be registered separately.

    Objects of the class can then be arguments and results of transformed functions, and gradients are returned in it.

    Parameters
    ----------
    cls : type
        The class.
    flatten : callable
        ``flatten(value)`` returns ``(children, data)``: the trees inside, and the remaining data, which is compared and hashed.
    unflatten : callable
        ``unflatten(data, children)`` rebuilds the value with other children.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    TypeError
        For a class that is already a leaf or a container; a dataclass may be registered.

    See Also
    --------
    flatten : The leaves of a tree.

    Examples
    --------
    >>> class Line:
    ...     def __init__(self, slope, offset):
    ...         self.slope, self.offset = slope, offset
    >>> _ = pb.tree.register(Line, lambda line: ((line.slope, line.offset), None), lambda data, parts: Line(*parts))
    >>> gradient = pb.grad(lambda line: line.slope * 3 + line.offset)(Line(1.0, 2.0))
    >>> type(gradient).__name__, gradient.slope
    ('Line', np.float64(3.0))
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
    """Rebuild a tree from a vector; `ravel` returns it.

    Attributes
    ----------
    size : int
        The number of elements of the vector.
    structure : TreeDef
        The structure of the tree.

    See Also
    --------
    ravel : Returns the vector and this function.

    Examples
    --------
    >>> vector, unravel = pb.tree.ravel((np.zeros((2, 2)), 1.0))
    >>> unravel.size
    5
    >>> unravel(np.arange(5.0))
    (array([[0., 1.],
           [2., 3.]]), 4.0)
    """

    __slots__ = ("_specs", "size", "structure")

    def __init__(self, structure: TreeDef, specs: tuple[_Leaf, ...]) -> None:
        self._specs = specs
        self.structure = structure
        self.size = sum(s.size for s in specs)

    def __call__(self, vector: Any) -> T:
        """Return the tree. Raises ValueError for anything but a vector of ``size`` elements."""
        values = _as_array(vector)
        if values.shape != (self.size,):
            raise ValueError(f"unravel takes a vector of shape ({self.size},) for {self.structure}, got shape {values.shape}")
        leaves, start = [], 0
        for spec in self._specs:
            leaves.append(spec.take(values[start : start + spec.size]))
            start += spec.size
        tree: T = rebuild(self.structure, leaves)
        return tree

    def __reduce__(self) -> tuple[Any, ...]:
        return Unravel, (self.structure, self._specs)

    def __repr__(self) -> str:
        return f"<unravel of {self.size} elements into {self.structure}>"


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    """The dtype and shape of a leaf; ``kind`` is the type of a Python or NumPy scalar, None for an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: type | None

    @staticmethod
    def of(leaf: Any, path: str) -> _Leaf:
        array = _as_array(leaf)
        if array.dtype.kind in "OSUMmT" or array.dtype.names is not None:
            raise TypeError(f"the leaf at tree{path} is of dtype {array.dtype}: only numbers can be ravelled")
        weak = {k.__name__: k for k in _NUMBERS}.get(getattr(leaf, "weak", ""))
        kind = weak or (None if isinstance(leaf, np.ndarray | TracedArray) else type(leaf))
        return _Leaf(dtype=array.dtype, shape=array.shape, kind=kind)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def take(self, part: Any) -> Any:
        """Return the leaf from its part of a vector."""
        array = part.reshape(self.shape).astype(self.dtype)
        if isinstance(array, TracedArray):
            array.weak = self.kind.__name__ if self.kind in _NUMBERS else ""
            return array
        if self.kind in _NUMBERS:
            return array.item()
        return array if self.kind is None else array[()]


def _as_array(x: Any) -> Any:
    return x if isinstance(x, TracedArray) else np.asarray(x)


def _steps(tree: TreeDef) -> list[str]:
    """Return the text that follows the parent's path for each child."""
    if tree.kind in ("namedtuple", "dataclass"):
        return [f".{k}" for k in tree.keys]
    return [f"[{k!r}]" for k in tree.keys]


def leaf_paths(tree: TreeDef, path: str) -> Iterator[str]:
    """Yield the path of each leaf as Python would write it."""
    if tree.kind == "leaf":
        yield path
    for step, child in zip(_steps(tree), tree.children):
        yield from leaf_paths(child, path + step)


def _matched(tree: TreeDef, other: TreeDef, its_leaves: Iterator[Any], path: str, ordinal: int) -> Iterator[Any]:
    """Yield the leaves of ``other`` in the order of ``tree``, a tree of the same structure. Raises ValueError if the
    structures differ."""

    def differ(a: Any, b: Any) -> ValueError:
        return ValueError(f"trees differ at tree{path}: {a} in the first, {b} in tree {ordinal}")

    if tree.kind != other.kind or tree.type is not other.type:
        raise differ(_title(tree), _title(other))
    if tree.kind == "leaf":
        yield next(its_leaves)
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
    parts = [[next(its_leaves) for _ in range(child.count)] for child in other.children]
    for position, step, child in zip(order, _steps(tree), tree.children):
        yield from _matched(child, other.children[position], iter(parts[position]), path + step, ordinal)


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two parts of structures are identical or equal."""
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
