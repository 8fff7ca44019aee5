"""Nested containers as a flat list of leaves and a structure that can be compared, hashed, and filled with other leaves.

Containers are tuples, lists, dicts (with their order), deques, namedtuples, dataclasses, namespaces and registered classes; sets
are part of the structure, in their order. Leaves are NumPy
arrays and scalars, Python numbers and traced arrays; every other value is static and part of the structure. Static values are
equal if they have the same type and value: 1, 1.0 and True are three values, 0.0 and -0.0 two.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.shapes.symbolic import Number, Size, is_size
from pullback.tracer.arrays.labelled import Labelled, Mark, array_of, instead_of, labelled, labels_of, parts_of, rewrapped
from pullback.tracer.arrays.masked import Selection
from pullback.tracer.arrays.traced import Appended, Gathers, Keyed, Listed, Tagged, TracedArray
from pullback.tracer.user_code.array_libraries import OTHER, class_title, library_of
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import GENERATED, has_users_attributes, is_users_class

_NUMBERS = (bool, int, float, complex, Size, Number)
_LEAVES = frozenset({np.ndarray, TracedArray, *_NUMBERS})


class Identity:
    """A key that compares by the identity of its value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Weakly(Identity):
    """As ``Identity``, with a weak reference; ``on_delete`` is called with the reference when the value is deleted."""

    __slots__ = ("_hash", "_reference")

    def __init__(self, value: Any, on_delete: Callable[[Any], None]) -> None:
        self._hash = id(value)
        self._reference = weakref.ref(value, on_delete)

    @property
    def value(self) -> Any:
        return self._reference()

    def __hash__(self) -> int:
        return self._hash


def weakened(key: Any, on_delete: Callable[[Any], None]) -> Any:
    """Return an equal key of static values that holds those compared by identity by weak references."""
    if type(key) is tuple:
        return tuple([weakened(k, on_delete) for k in key])
    if isinstance(key, TreeDef):
        data = None if key.kind == "static" else key.data
        children = [weakened(c, on_delete) for c in key.children]
        return TreeDef(key.kind, key.type, data, weakened(key.key[2], on_delete), children)
    if type(key) is Identity:
        with contextlib.suppress(TypeError):
            return Weakly(key.value, on_delete)
    return key


def real_class(kind: type) -> type:
    """Return the user's class behind a shadow (see ``user_classes``); other classes unchanged."""
    real: type = vars(kind).get("__pullback_real__", kind)
    return real


@dataclass(frozen=True, eq=False, kw_only=True)
class Container:
    """The functions of a registered class: ``flatten(value) -> (children, data)`` and ``unflatten(data, children)``.

    ``is_selected``: for results, ``unflatten`` returns that one of the other children whose position the first child is, except
    for children for which it raises, which are static objects of a class in ``refused``."""

    type: type
    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    is_selected: bool = False
    refused: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return container_of, (self.type,)

    def children(self, value: Any) -> tuple[Sequence[Any], Any]:
        """Return the children of a value and its data. Raises TypeError if ``flatten`` returns anything else."""
        flat: Any = self.flatten(value)
        if not isinstance(flat, tuple) or len(flat) != 2 or not isinstance(flat[0], tuple | list):
            raise TypeError(f"flatten of {self.type.__name__} must return a pair (children, data), children a tuple or list")
        return flat


# A registration is an attribute of its class, with the same lifetime; for a class without settable attributes it is stored here.
_CONTAINER = "__pullback_container__"
_registered: dict[type, Container] = {}
REGISTRATIONS: dict[str, Any] = {"last": None}
"""A token of the last registration: another registration may change how an object is flattened."""


def register(container: Container) -> None:
    """Make a class a container; replaces an earlier registration of the class."""
    _is_known_by_identity.cache_clear()
    REGISTRATIONS["last"] = object()
    try:
        setattr(container.type, _CONTAINER, container)
    except TypeError:
        _registered[container.type] = container


def container_of(kind: type) -> Container | None:
    """Return the registration of a class, or None; subclasses must be registered themselves."""
    real = real_class(kind)
    return real.__dict__.get(_CONTAINER) or _registered.get(real)


class TreeDef:
    """The structure of a tree. ``kind``: "leaf", "static", "named" (declared static by the user), the kind of a container, or
    "same leaf" and "object" for an earlier leaf and a container, ``data`` in their lists, that are met again."""

    __slots__ = ("_hash", "children", "count", "data", "key", "kind", "type")

    def __init__(self, kind: str, type: Any = None, data: Any = None, key: Any = None, children: Sequence[TreeDef] = ()) -> None:
        self.kind = kind
        self.type = type
        self.data = data
        self.key = (kind, type, key)
        self.children = tuple(children)
        self.count: int = 1 if kind == "leaf" else sum([c.count for c in self.children])
        self._hash = hash((self.key, self.children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef) or self._hash != other._hash:
            return False
        return self.key == other.key and self.children == other.children

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeDef, (self.kind, self.type, self.data, self.key[2], self.children)

    def __repr__(self) -> str:
        if self.kind == "leaf":
            return "*"
        if self.kind in ("static", "named"):
            return repr(self.data)
        if self.kind in ("same leaf", "object"):
            return f"{self.kind} {self.data}"
        if self.kind == "labelled":
            return f"{self.data}"
        is_named = self.kind in ("dict", "namedtuple", "dataclass")
        inside = [f"{k}={c!r}" if is_named else repr(c) for k, c in zip(self.keys, self.children)]
        return f"{self.type.__name__}({', '.join(inside)})"

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the children: keys of a dict, names of fields, else positions."""
        if self.kind == "dict":
            keys: Sequence[Any] = self.data[0]
            return keys
        return self.data if self.kind in ("namedtuple", "dataclass") else range(len(self.children))


LEAF = TreeDef("leaf")
APPENDED = TreeDef("appended", list)
"""The structure of a list that a function only makes longer, of any contents."""


class OnlyAppended:
    """Stands in a call for a list that the function only makes longer."""

    __slots__ = ()


_STAND_IN = "__pullback_stand_in__"
"""An attribute of the classes of the stand-ins for outside objects in a trace."""
EQUAL: set[type] = set()
"""Classes whose objects are compared by equality although they have a dict. Filled by ``pullback``."""


def is_stand_in(kind: type) -> bool:
    """Return whether objects of a class stand for outside objects in a trace."""
    return _STAND_IN in vars(kind)


def element_key(value: Any) -> Any:
    """Return a key of an element of a set, which is not equal to that of an equal element of another type."""
    if type(value) is tuple:
        return tuple, tuple(map(element_key, value))
    return type(value), repr(value) if isinstance(value, float | complex) else value


def static_key(value: Any, by_identity: bool = True) -> Any:
    """Return a key that is equal for equal static values. Raises TraceError for a value that cannot be hashed.

    ``by_identity``: objects with state of their own are equal only if they are the same object.
    """
    if isinstance(value, float | complex):
        return type(value), repr(value)
    if isinstance(value, tuple | frozenset):
        return type(value), type(value)(map(static_key, value)) if type(value) in (tuple, frozenset) else value
    if isinstance(value, slice):
        return slice, static_key((value.start, value.stop, value.step))
    if isinstance(value, MethodType):
        return MethodType, Identity(value.__self__), Identity(value.__func__)
    kind = type(value)
    if kind is Selection:
        raise value.refusal()
    if is_stand_in(kind):
        return Identity(value)
    is_array = hasattr(kind, "__array__") and not isinstance(value, np.generic) and not is_users_class(kind)
    if by_identity and (is_array or kind in _BUFFERS):
        raise TraceError(f"a {kind.__module__}.{kind.__name__} is no NumPy array; pass np.asarray of it")
    if by_identity and hasattr(value, "__dict__") and not isinstance(value, type) and kind not in EQUAL:
        return Identity(value)
    try:
        hash(value)
    except TypeError:
        instead = "pass arrays, numbers, or containers of them" if by_identity else "pass a tuple or a frozen dataclass"
        raise TraceError(f"a value of type {kind.__name__} cannot be a static argument: it has no hash; {instead}") from None
    return kind, value


_BUFFERS = (memoryview, array)


def is_array_like(kind: Any) -> bool:
    """Return whether objects of a library's class stand for NumPy arrays, as those of pandas, xarray and torch do."""
    return _is_array_like(kind)


@functools.lru_cache(maxsize=256)
def _is_array_like(kind: Any) -> bool:
    if issubclass(kind, np.ndarray | np.generic | TracedArray | Remote | type):
        return False
    if library_of(kind) is not None:
        return True
    if not any(hasattr(kind, n) for n in _CONVERSIONS):
        return False
    if hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack_device__"):
        return True
    return str(kind.__module__).partition(".")[0] not in ("builtins", "numpy", "pullback", "scipy") and not is_users_class(kind)


_CONVERSIONS = ("__array__", "__array_interface__", "__dlpack__", "__cuda_array_interface__")


ADOPT: list[Callable[[Any], Remote | None]] = []
"""Functions that return the device array for which an object stands, or None. Filled by ``pullback``."""


def adopted(x: Any) -> Remote | None:
    """Return the device array for which an object stands; None for any other."""
    return next((remote for adopt in ADOPT if (remote := adopt(x)) is not None), None)


def as_array(x: Any) -> Any:
    """Return the array of an array-like object, sharing its memory; if it has to be a copy, it is read-only."""
    remote = adopted(x)
    if remote is not None:
        return remote
    array = _converted(x)
    if array.flags.writeable and not np.may_share_memory(array, _converted(x)):
        array.flags.writeable = False
    return array


def _converted(x: Any) -> np.ndarray[Any, Any]:
    return np.from_dlpack(x) if not hasattr(x, "__array__") and hasattr(x, "__dlpack__") else np.asarray(x)


def named(value: Any) -> TreeDef:
    """Return the structure of a value that the user declared static, compared by its own equality."""
    return TreeDef("named", None, value, static_key(value, by_identity=False))


def is_leaf(x: Any) -> bool:
    return type(x) in _LEAVES or isinstance(x, np.generic | np.ndarray | TracedArray | Remote | Gathers)


def is_large(x: Any) -> bool:
    """Return whether a number is a Python int that exceeds 64 bits, and so is static."""
    return type(x) is int and not -(2**63) <= x < 2**63


def flatten(tree: Any, *, static_numbers: bool = False, key: Callable[[Any], Any] = static_key) -> tuple[list[Any], TreeDef]:
    """Return the leaves and the structure of a tree; ``static_numbers`` makes Python numbers part of the structure.

    ``key`` returns the key of a static value; its default raises TraceError for one without a hash.
    """
    flattened = _Flattened(static_numbers, key)
    return flattened.leaves, flattened(tree)


class _Flattened:
    """The leaves of a tree. A call appends those of a value and returns its structure. It has no reference to itself, which would
    keep the leaves."""

    __slots__ = ("key", "leaves", "static_numbers")

    def __init__(self, static_numbers: bool, key: Callable[[Any], Any]) -> None:
        self.leaves: list[Any] = []
        self.static_numbers, self.key = static_numbers, key

    def __call__(self, x: Any) -> TreeDef:
        return structure_of(x, self.leaves, self, static_numbers=self.static_numbers, key=self.key)


def structure_of(
    x: Any, leaves: list[Any], structure: Callable[[Any], TreeDef], *, static_numbers: bool = False,
    key: Callable[[Any], Any] = static_key,
) -> TreeDef:  # fmt: skip
    """Return the structure of a value, of whose children ``structure`` returns it, and append the value to ``leaves`` if it is a
    leaf. ``static_numbers`` and ``key``: see ``flatten``."""
    kind = type(x)
    if kind is Appended or kind is OnlyAppended:
        return APPENDED
    if issubclass(kind, Listed):
        x, kind = x.contents(), list
    elif issubclass(kind, Keyed):
        x, kind = x.contents(), x.stands_for
    if (kind in _LEAVES or is_leaf(x)) and not (kind in _NUMBERS and (static_numbers or is_large(x))):
        leaves.append(x.elements() if isinstance(x, Gathers) else x)
        return LEAF
    if kind is tuple or kind is list:
        return TreeDef(kind.__name__, kind, children=[structure(e) for e in x])
    if kind in (dict, OrderedDict, defaultdict):
        keys = tuple(map(_key_of, x))
        extra = x.default_factory if kind is defaultdict else None
        marks = keys if all(type(k) is str for k in keys) else key(keys)
        return TreeDef("dict", kind, (keys, extra), (marks, extra), [structure(e) for e in x.values()])
    if kind is deque:
        return TreeDef("deque", deque, x.maxlen, x.maxlen, [structure(e) for e in x])
    if kind is set and key is static_key:
        elements = tuple(map(_key_of, x))
        return TreeDef("set", set, elements, key(elements))
    if kind is Labelled:
        array, labels = parts_of(x)
        return TreeDef("labelled", Labelled, labels, labels, [structure(array)])
    if key is static_key and library_of(kind) is not None:
        return _flatten_labelled(x, leaves)
    if key is static_key and (kind is memoryview or is_array_like(kind)):
        leaves.append(as_array(x))
        return LEAF
    if kind is frozenset:
        x = frozenset(map(_key_of, x))
    kind = real_class(x.__class__)
    container = container_of(kind)
    if container is not None:
        inside, data = container.children(x)
        return TreeDef("registered", container.type, (container, data), (container, key(data)), [structure(e) for e in inside])
    if kind in NAMESPACES and is_tree(x):
        names = tuple(vars(x))
        return TreeDef("dataclass", kind, names, names, [structure(e) for e in vars(x).values()])
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return TreeDef("namedtuple", kind, x._fields, children=[structure(e) for e in x])
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(f.name for f in dataclasses.fields(x))
        return TreeDef("dataclass", kind, names, names, [structure(getattr(x, n)) for n in names])
    return TreeDef("static", None, x, Identity(x) if is_size(x) else key(x))


NAMESPACES = (SimpleNamespace, argparse.Namespace)
"""Classes without code of their own, whose objects are trees of their attributes, in their order, as dataclasses are."""
_OTHER_ARRAYS = "OSUMm"
"""The kinds of dtypes of arrays that are no leaves."""


def is_tree(x: Any) -> bool:
    """Return whether a namespace is the tree of its attributes; one that is in itself, or has an attribute that is neither a
    leaf nor can be compared, is static."""
    return _has_structure(x, ())


def _has_structure(x: Any, around: tuple[int, ...]) -> bool:
    """Return whether a value has a structure, as an attribute of namespaces, which it is not in, with these ids."""
    kind = type(x)
    if kind in NAMESPACES or kind in (list, tuple, dict):
        inside: Any = x if kind in (list, tuple) else x.values() if kind is dict else vars(x).values()
        return id(x) not in around and all(_has_structure(e, (*around, id(x))) for e in inside)
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype.kind not in _OTHER_ARRAYS
    if kind in _LEAVES or kind is str or x is None or isinstance(x, Listed | Keyed | Tagged | Remote | Gathers):
        return True
    if dataclasses.is_dataclass(x) or container_of(real_class(x.__class__)) is not None:
        return True
    try:
        static_key(x)
    except TraceError:
        return False
    return True


def _key_of(key: Any) -> Any:
    """Return a key of a dict with the values of the traced numbers in it, which are static since the dict has their hashes."""
    if type(key) is tuple:
        return tuple(map(_key_of, key))
    if type(key) is not TracedArray:
        return key
    known: Any = (key.literal,) if key.literal is not None else key.known
    if known is None:
        raise TraceError("a dict with a key that values decide is used as one of fixed keys")
    return known[0] if key.weak else key.dtype.type(known[0])


def _flatten_labelled(x: Any, leaves: list[Any]) -> TreeDef:
    flat = labelled_array(x)
    leaves.append(flat[0] if isinstance(flat, tuple) else flat)
    return TreeDef("labelled", Labelled, flat[1], flat[1], [LEAF]) if isinstance(flat, tuple) else LEAF


def labelled_array(x: Any) -> Any:
    """Return the array and the labels of a library's object that computes in its own way.

    For a device object whose library computes as NumPy does, return the array alone. Raises TraceError for an object that is
    not accepted as an array.
    """
    remote = adopted(x)
    if remote is not None:
        labels = labels_of(x)
        assert labels is not None
        if labels.library is OTHER:
            return remote
        labels.is_remote = True
        return remote, labels
    array, labels = labelled(x)
    if labels.library is OTHER:
        raise TraceError(f"a {class_title(type(x))} computes in its own way, which a traced array does not; {instead_of(x)}")
    if isinstance(array, np.ndarray) and array.flags.writeable and not np.may_share_memory(array, array_of(x)):
        array.flags.writeable = False
    return array, labels


def holds_labels(tree: TreeDef) -> bool:
    """Return whether a structure contains labelled objects of libraries."""
    return tree.kind == "labelled" or any(map(holds_labels, tree.children))


def bare(tree: TreeDef) -> TreeDef:
    """Return the structure with arrays in place of libraries' labelled objects."""
    if tree.kind == "labelled":
        return bare(tree.children[0])
    children = [bare(c) for c in tree.children]
    if all(a is b for a, b in zip(children, tree.children)):
        return tree
    return TreeDef(tree.kind, tree.type, tree.data, tree.key[2], children)


def unflatten(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """Return the tree with these leaves, in containers of the same types."""
    remaining = iter(leaves)
    tree_ = _unflatten(tree, remaining)
    if next(remaining, None) is not None:
        raise ValueError(f"{len(leaves)} leaves for a structure of {tree.count}")
    return tree_


def _unflatten(tree: TreeDef, leaves: Any) -> Any:
    return next(leaves) if tree.kind == "leaf" else assembled(tree, [_unflatten(c, leaves) for c in tree.children])


def assembled(tree: TreeDef, children: Sequence[Any]) -> Any:
    """Return the value of a structure, which is no leaf, with these children."""
    match tree.kind:
        case "static" | "named":
            return tree.data
        case "tuple" | "list":
            return tree.type(children)
        case "labelled":
            return rewrapped(tree.data, children[0])
        case "appended":
            return Appended()
        case "deque":
            return deque(children, tree.data)
        case "set":
            return set(tree.data)
        case "dict":
            keys, extra = tree.data
            pairs = zip(keys, children, strict=True)
            return defaultdict(extra, pairs) if tree.type is defaultdict else tree.type(pairs)
        case "namedtuple":
            return tree.type(*children)
        case "registered":
            container, data = tree.data
            return container.unflatten(data, tuple(children))
    return _put(_empty(tree.type), tree.data, children)


def children_of(tree: TreeDef, value: Any) -> list[Any]:
    """Return the children of a value that has a structure: a tuple, list, dict, deque, set, namedtuple or dataclass."""
    if tree.kind == "dict":
        return [value[k] for k in tree.keys]
    if tree.kind == "set":
        return []
    return [getattr(value, name) for name in tree.data] if tree.kind == "dataclass" else list(value)


def with_children(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a dict, deque, namedtuple, dataclass or namespace with ``change(child)`` in place of each child; the value itself if
    it is another one, or if no child changes."""
    kind = type(value)
    is_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
    is_object = kind in NAMESPACES or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    if not (is_tuple or is_object or kind in (dict, OrderedDict, defaultdict, deque)):
        return value
    children: list[Any] = []

    def structure(child: Any) -> TreeDef:
        children.append(child)
        return LEAF

    tree = structure_of(value, [], structure)
    if tree.kind not in ("dict", "deque", "namedtuple", "dataclass"):
        return value
    changed = list(map(change, children))
    return value if all(a is b for a, b in zip(changed, children, strict=True)) else assembled(tree, changed)


def paths(tree: TreeDef, prefix: str = "") -> list[str]:
    """Return, for each leaf, the expression that reads it: ``prefix['w'][0].x``."""
    if tree.kind == "leaf":
        return [prefix]
    if tree.kind == "labelled":
        return paths(tree.children[0], prefix)
    step = ".{}" if tree.kind in ("namedtuple", "dataclass") else "[{!r}]"
    return [p for k, c in zip(tree.keys, tree.children) for p in paths(c, f"{prefix}{step.format(k)}")]


def map_statics(tree: TreeDef, change: Any, change_type: Any = None) -> TreeDef:
    """Return the structure with ``change(value)`` in place of each static value and of registered classes' ``unflatten`` and
    data.

    ``change_type(kind)`` replaces each namedtuple's and dataclass's type. The result is for filling only, not for comparing.
    """
    if tree.kind in ("static", "named"):
        changed = change(tree.data)
        return tree if changed is tree.data else TreeDef("static", None, changed, Identity(changed))
    if tree.kind == "leaf":
        return tree
    children = [map_statics(c, change, change_type) for c in tree.children]
    kind = tree.type if change_type is None or tree.kind not in ("namedtuple", "dataclass") else change_type(tree.type)
    data = tree.data
    if tree.kind == "registered":
        container, held = data
        data = (dataclasses.replace(container, unflatten=change(container.unflatten)), change(held))
    elif kind is tree.type and all(a is b for a, b in zip(children, tree.children)):
        return tree
    return TreeDef(tree.kind, kind, data, tree.key[2], children)


def containers(tree: TreeDef) -> Iterator[Container]:
    """Yield the registrations on which a structure depends."""
    if tree.kind == "registered":
        yield tree.data[0]
    for child in tree.children:
        yield from containers(child)


def leaf_key(x: Any) -> Any:
    """Return the part of a leaf on which a program depends: dtype, shape and memory order of an array, the type of a scalar.

    Memory order is "c" (row-major, dense, aligned, native bytes) or "strided"; for a device array it is its ``layout``,
    followed by the device.
    """
    kind = type(x)
    if kind in _NUMBERS:
        return kind
    if isinstance(x, np.ndarray):
        flags = x.flags
        return x.dtype, x.shape, "c" if flags.c_contiguous and flags.aligned and x.dtype.isnative else "strided"
    if isinstance(x, Remote):
        return x.key
    return (x.dtype,)


class Leaves(list[Any]):
    """The leaves of a call. ``arguments``: its arguments, by position and by keyword, in which they are. ``objects``: the objects
    that a trace reads by attributes (see ``is_object``), in the same order as leaves."""

    __slots__ = ("arguments", "objects")

    def __init__(self, arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> None:
        super().__init__()
        self.arguments = arguments
        self.objects: list[Any] = []


OBJECT = "object"
"""The mark, in a key, of an object that is read by attributes, of which the key has the class."""


def is_object(kind: type) -> bool:
    """Return whether objects of a class are read by attributes: those of the user's plain classes, which are no containers."""
    return has_users_attributes(kind) and _is_known_by_identity(kind)


def fingerprint(x: Any, leaves: Leaves, key: list[Any]) -> None:
    """Append the leaves of a tree to ``leaves``, its objects to ``leaves.objects``, and the part on which a program depends to
    ``key``.

    Two trees have equal keys exactly if their structures, the keys of their leaves and the classes of their objects are equal.
    Raises TraceError for a static value without a hash.
    """
    kind = type(x)
    if kind is np.ndarray:
        leaves.append(x)
        key += (x.dtype, x.shape, x.flags.num & ROW_MAJOR == ROW_MAJOR)
    elif kind in _NUMBERS:
        if is_large(x):
            key += (kind, x)
            return
        leaves.append(x)
        key.append(kind)
    elif isinstance(x, Remote):
        leaves.append(x)
        key.append(x.key)
    elif kind is tuple or kind is list:
        key += (kind, len(x))
        for e in x:
            fingerprint(e, leaves, key)
    elif kind is dict:
        key += (kind, tuple(k if type(k) is str else static_key(k) for k in x))
        for e in x.values():
            fingerprint(e, leaves, key)
    elif isinstance(x, tuple) and hasattr(x, "_fields"):
        key += (kind, len(x))
        for e in x:
            fingerprint(e, leaves, key)
    elif is_array_like(kind):
        flat = labelled_array(x) if library_of(kind) is not None else as_array(x)
        if isinstance(flat, tuple):
            key.append(Mark(x, flat[1], key))
            flat = flat[0]
        fingerprint(flat, leaves, key)
    elif is_object(kind):
        leaves.objects.append(x)
        key += (OBJECT, Identity(kind))
    elif known_by_identity(x):
        key.append(Identity(x))
    else:
        flat, tree = flatten(x)
        leaves += flat
        key += (tree, *((type(leaf), leaf_key(leaf)) for leaf in flat))


def known_by_identity(x: Any) -> bool:
    """Return whether an object that is no container is static and compared by identity."""
    kind: Any = type(x)
    return _is_known_by_identity(kind) and hasattr(x, "__dict__") and not (kind in NAMESPACES and is_tree(x))


@functools.lru_cache(maxsize=256)
def _is_known_by_identity(kind: type) -> bool:
    """Return whether objects of a class are static and compared by identity."""
    if kind in EQUAL or container_of(kind) is not None or dataclasses.is_dataclass(kind) or hasattr(kind, "__array__"):
        return False
    return not issubclass(kind, _BY_VALUE) and not any("__class__" in vars(k) for k in kind.__mro__[:-1])


_BY_VALUE = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, type, MethodType)
ROW_MAJOR = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


def generate_unflatten(tree: TreeDef) -> Any:
    """Generate a function equivalent to ``unflatten(tree, leaves)`` for this structure; it takes a list of the right length, and
    the containers that the structure has as objects."""
    values: dict[str, Any] = {"new": _empty, "put": _put}
    counter = itertools.count()
    text = _expression(tree, counter, values)
    return eval(compile(f"lambda leaves, objects=(): {text}", GENERATED, "eval"), values)


def _expression(tree: TreeDef, counter: Iterator[int], values: dict[str, Any]) -> str:
    if tree.kind == "leaf":
        return f"leaves[{next(counter)}]"
    if tree.kind in ("same leaf", "object"):
        return f"{'objects' if tree.kind == 'object' else 'leaves'}[{tree.data}]"
    name = f"v{len(values)}"
    if tree.kind in ("static", "named"):
        values[name] = tree.data
        return name
    values[name] = tree.type
    if tree.kind == "labelled":
        values[f"{name}_rewrapped"], values[f"{name}_labels"] = rewrapped, tree.data
        return f"{name}_rewrapped({name}_labels, {_expression(tree.children[0], counter, values)})"
    inside = [_expression(c, counter, values) for c in tree.children]
    match tree.kind:
        case "tuple":
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        case "list":
            return f"[{', '.join(inside)}]"
        case "deque":
            return f"{name}([{', '.join(inside)}], {tree.data!r})"
        case "set":
            values[f"{name}_elements"] = tree.data
            return f"{name}({name}_elements)"
        case "namedtuple":
            return f"{name}({', '.join(inside)})"
        case "registered":
            values[name], values[f"{name}_data"] = tree.data
            return f"{name}.unflatten({name}_data, ({', '.join(inside)}{',' if len(inside) == 1 else ''}))"
        case "dict":
            keys, extra = tree.data
            values[f"{name}_keys"], values[f"{name}_extra"] = keys, extra
            pairs = ", ".join(f"({name}_keys[{k}], {e})" for k, e in enumerate(inside))
            return f"{name}({f'{name}_extra, ' if tree.type is defaultdict else ''}[{pairs}])"
    values[f"{name}_names"] = tree.data
    return f"put(new({name}), {name}_names, [{', '.join(inside)}])"


def _empty(kind: Any) -> Any:
    """Return an object of a class without attributes; its own code does not run."""
    return kind() if kind in NAMESPACES else object.__new__(kind)


def _put(instance: Any, names: Sequence[str], values: Sequence[Any]) -> Any:
    for name, value in zip(names, values, strict=True):
        object.__setattr__(instance, name, value)
    return instance
