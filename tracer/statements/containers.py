"""The lists, dicts and objects that blocks reach: state of fixed structure, of which each item is a variable.

A block may rebind the items of a list, of a dict and the attributes of an object, as it rebinds variables; it may not change
which items there are. In trees that a branch joins or a loop carries, such a container stands for itself (``Reference``): the
container stays one object under all its names, and its items are joined and carried on their own.
"""

from __future__ import annotations

import dis
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.traced import Appended, Assigned, Keyed, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.tree import container_of
from pullback.tracer.names.proxies import Outside
from pullback.tracer.names.side_effects import effect, reached
from pullback.tracer.statements.growing import GrowingList, Grows
from pullback.tracer.stores import ContainersOfCall, changing_part
from pullback.tracer.syntax.table import PREFIX
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import attribute_names, is_users, is_users_object, users_bases

COPY = "a list, dict or object that may be one of several after a branch is changed; copy it"
_MISSING = object()


class Slot:
    """An item of a container, as a cell: ``cell_contents`` is read and assigned."""

    __slots__ = ("container", "key")

    def __init__(self, container: Container, key: Any) -> None:
        self.container, self.key = container, key

    @property
    def cell_contents(self) -> Any:
        return self.container.get(self.key)

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.container.put(self.key, value)


class Container:
    """A mutable container or object of the trace; ``name`` is one of its names.

    An array of NumPy that the function made is one too, whose contents are its only item: a block that writes it is traced anew,
    with such arrays traced.
    """

    def __init__(self, value: Any, name: str, kind: str = "") -> None:
        self.value, self.name = value, name
        self.kind = kind or _kind(value)

    @property
    def keys(self) -> list[Any]:
        """The indices, keys or names of attributes, in order."""
        return [key for key, _ in self.items]

    @property
    def items(self) -> list[tuple[Any, Any]]:
        """The items of the container, each with its key."""
        return _items(self.value, self.kind)

    @property
    def inner(self) -> list[tuple[Any, Any]]:
        """The items that may be containers, each with its key."""
        return [] if self.kind == "array" and not self.value.dtype.hasobject else self.items

    def get(self, key: Any) -> Any:
        """Return the item of a key. Raises ValueError, as a cell does, if there is none any more."""
        try:
            return self._get(key)
        except (LookupError, AttributeError):
            raise ValueError("no item") from None

    def _get(self, key: Any) -> Any:
        match self.kind:
            case "list":
                if key >= list.__len__(self.value):
                    raise ValueError("no item")
                return list.__getitem__(self.value, key)
            case "dict":
                return dict.__getitem__(self.value, key)
            case "object" if key in vars(self.value):
                return vars(self.value)[key]
            case "set":
                return True
            case "deque":
                return self.value[key]
            case "rows":
                return self.value.rows.length
        return getattr(self.value, key)

    def put(self, key: Any, item: Any) -> None:
        """Set the item of a key."""
        if self.get(key) is item:
            return
        match self.kind:
            case "list":
                list.__setitem__(self.value, key, item)
            case "dict":
                dict.__setitem__(self.value, key, item)
            case "object" if key in vars(self.value):
                vars(self.value)[key] = item
            case "deque":
                self.value[key] = item
            case "rows":
                self.value.rows.length = item
            case _:
                object.__setattr__(self.value, key, item)

    def restore(self, items: Sequence[tuple[Any, Any]]) -> None:
        """Give the container these items and no others."""
        if self.has(items):
            return
        if self.kind == "rows":
            self.value.rows.length = items[0][1]
        match self.kind:
            case "list":
                list.__setitem__(self.value, slice(None), [x for _, x in items])
            case "dict":
                kind = OrderedDict if isinstance(self.value, OrderedDict) else dict
                kind.clear(self.value)
                for key, item in items:
                    kind.__setitem__(self.value, key, item)
            case "object":
                slots = set(attribute_names(self.value)) - set(vars(self.value))
                vars(self.value).clear()
                vars(self.value).update((k, x) for k, x in items if k not in slots)
            case "set":
                self.value.clear()
                self.value.update(k for k, _ in items)
            case "deque":
                self.value.clear()
                self.value.extend(x for _, x in items)
            case "array" if self.value.dtype.hasobject:
                self.value.flat = [x for _, x in items]
            case "array":
                self.value[...] = np.frombuffer(items[0][1], self.value.dtype).reshape(self.value.shape)
        for key, item in items if self.kind in ("object", "slots") else ():
            if key not in getattr(self.value, "__dict__", ()):
                object.__setattr__(self.value, key, item)

    def has(self, items: Sequence[tuple[Any, Any]], keys_only: bool = False) -> bool:
        """Return whether the container has these items, or items of these keys."""
        now = self.items
        if self.kind == "array":
            return now == items if not self.value.dtype.hasobject else all(x is y for (_, x), (_, y) in zip(now, items))
        if len(now) != len(items):
            return False
        return all(
            _is_same_key(j, k) and (keys_only or x is y) for (j, x), (k, y) in zip(now, items, strict=True)
        )  # fmt: skip


def _is_same_key(a: Any, b: Any) -> bool:
    return a is b or (type(a) in (str, int, tuple) and type(a) is type(b) and a == b)


def _kind(value: Any) -> str:
    """Return how the items of a container are read and set; empty for a value without such items."""
    kind = type(value)
    if issubclass(kind, TracedArray | Tagged | Outside):
        return ""
    if issubclass(kind, Keyed):
        return "keyed"
    if issubclass(kind, np.ndarray):
        return "array"
    if issubclass(kind, list):
        return "rows" if has_rows(value) else "list"
    if issubclass(kind, dict):
        return "dict"
    if kind in (set, deque):
        return kind.__name__
    if kind is SimpleNamespace or is_users_object(value) or container_of(kind) is not None:
        return "object" if type(getattr(value, "__dict__", None)) is dict else "slots"
    return ""


def _items(value: Any, kind: str) -> list[tuple[Any, Any]]:
    match kind:
        case "list":
            return list(enumerate(list.__iter__(value)))
        case "rows":
            return [("length", value.rows.length)]
        case "deque":
            return list(enumerate(value))
        case "dict":
            return list(value.items() if isinstance(value, OrderedDict) else dict.items(value))
        case "set":
            return [(x, True) for x in value]
        case "object":
            return list({**vars(value), **_slots(value)}.items())
        case "keyed":
            return [("entries", value.entries)]
        case "slots":
            return list(_slots(value).items())
        case "array":
            return list(enumerate(value.flat)) if value.dtype.hasobject else [("contents", value.tobytes())]
    return []


def _slots(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are not in its ``__dict__``."""
    names = [name for name in attribute_names(value) if name not in getattr(value, "__dict__", ())]
    pairs = ((name, getattr(value, name, _MISSING)) for name in names)
    return {name: x for name, x in pairs if x is not _MISSING}


def containers_in(values: Iterable[tuple[str, Any]], functions: list[FunctionType] | None = None) -> list[Container]:
    """Return the containers among values, in these and in the functions among them, each once, with names. The functions are
    added to ``functions``, and so are the methods of objects."""
    containers: list[Container] = []
    work, seen = list(values)[::-1], set[int]()
    while work:
        name, value = work.pop()
        if isinstance(value, TracedArray | int | float | str | None) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType | partial | MethodType):
            work += [(f"{inner}", x) for inner, x, _ in reached(value)]
            if functions is not None:
                functions += [f for f in (value, getattr(value, "__func__", None)) if isinstance(f, FunctionType)]
        elif isinstance(value, BuiltinMethodType):
            work.append((name, value.__self__))
        elif isinstance(value, Iterator) and not is_users_object(value):
            raise TraceError(f"a branch or loop on traced values uses the iterator {name}, which one run uses up; index an array")
        elif isinstance(value, Tagged):
            work += [(name, x) for x in value.cases]
        elif type(value) in (Appended, Assigned):
            work.append((name, changing_part(value)))
        elif isinstance(value, tuple):
            work += [(f"{name}[{k}]", x) for k, x in enumerate(value)][::-1]
        elif _kind(value):
            own = [Container(value, name)]
            if own[0].kind in ("list", "dict") and type(getattr(value, "__dict__", None)) is dict:
                own.append(Container(value, name, "object"))
            containers += own
            if functions is not None and own[0].kind in ("object", "slots"):
                functions += [f for k in users_bases(type(value)) for f in vars(k).values() if isinstance(f, FunctionType)]
            for container in own:
                pattern = "{}.{}" if container.kind in ("object", "slots") else "{}[{!r}]"
                work += [(pattern.format(name, key), x) for key, x in container.inner if not _is_plain(x)][::-1]
    return containers


def _is_plain(x: Any) -> bool:
    return isinstance(x, TracedArray | int | float | str | None)


@cache
def bound_outside(code: CodeType) -> frozenset[str]:
    """Return the variables of outer functions that code, or a function inside it, binds or unbinds."""
    inside = [bound_outside(c) for c in code.co_consts if isinstance(c, CodeType)]
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return frozenset(own).union(*inside).intersection(code.co_freevars)


def _bound_by(functions: Iterable[FunctionType]) -> dict[int, tuple[str, CellType]]:
    """Return the variables that functions of the user's bind as nonlocal ones, by the ids of their cells."""
    cells: dict[int, tuple[str, CellType]] = {}
    for function in functions:
        code = function.__code__
        if code.co_freevars and not code.co_name.startswith(PREFIX) and is_users(code):
            bound = bound_outside(code)
            pairs = zip(code.co_freevars, function.__closure__ or (), strict=True)
            cells.update((id(cell), (name, cell)) for name, cell in pairs if name in bound)
    return cells


class State:
    """The containers that functions, and the ``values`` of variables, reach, with their items as ``slots``, and the items'
    ``names``. ``bound``: the variables that functions among them bind as nonlocal ones, each a name and a cell."""

    def __init__(self, functions: Sequence[Any], values: Sequence[tuple[str, Any]] = ()) -> None:
        callables: list[FunctionType] = []
        named = ((getattr(f, "__name__", "a function"), f) for f in functions)
        root = frame_of().root
        outside = [*root.stores.stored_copies(), *((target.describe, target.stored) for target in root.names.places.stored())]
        outside += [pair for attributes in root.names.replaced.values() for pair in attributes.items()]
        self.containers = containers_in((*named, *values, *outside), callables)
        self.bound = list(_bound_by(callables).values())
        self.ids = {id(c.value): c for c in self.containers if c.kind != "array"}
        self.slots = [Slot(c, key) for c in self.containers if c.kind not in ("set", "array") for key in c.keys]
        self.names = [_title(slot) for slot in self.slots]
        self._outside = {id(c.value) for c in containers_in(outside)} if outside else set[int]()

    @property
    def slots_outside(self) -> set[int]:
        """The indices of the slots of containers that are visible outside."""
        return {k for k, slot in enumerate(self.slots) if id(slot.container.value) in self._outside}

    def saved(self) -> Saved:
        """Return the containers with the items that they have now."""
        return Saved([(c, c.items) for c in self.containers])

    def referenced(self, value: Any) -> Any:
        """Return a tree with a ``Reference`` in place of each container that is one of these."""
        kind = type(value)
        if id(value) in self.ids:
            return Reference(value)
        if kind is GrowingList and value.rows is not None:
            return value
        if kind in (tuple, list, GrowingList) and value:
            inside = [self.referenced(x) for x in value]
            kind = tuple if kind is tuple else list
            return value if all(a is b for a, b in zip(inside, value, strict=True)) else kind(inside)
        if kind is dict:
            pairs = {k: self.referenced(x) for k, x in value.items()}
            return value if all(pairs[k] is value[k] for k in value) else pairs
        return value


class Saved:
    """Containers with the items that they had before a block."""

    def __init__(self, before: Sequence[tuple[Container, list[tuple[Any, Any]]]]) -> None:
        self.before = before
        self.lists = [(c.value, c.value.state()) for c, _ in before if isinstance(c.value, GrowingList)]
        for target, _ in self.lists:
            target.peak = list.__len__(target)

    def has_same_keys(self) -> bool:
        """Return whether all containers, but lists that may grow, have the keys that they had before."""
        return all(isinstance(c.value, GrowingList) or c.has(items, keys_only=True) for c, items in self.before)

    def grown(self) -> set[int]:
        """Return the ids of the lists that may grow, and have other numbers of items than before, or became rows of arrays."""
        lists = ((c, items) for c, items in self.before if isinstance(c.value, GrowingList))
        return {id(c.value) for c, items in lists if _kind(c.value) != c.kind or not c.has(items, keys_only=True)}

    def refuse_other_keys(self) -> None:
        """Raise TraceError if a container has other keys than before, or another number of items: Grows for a list."""
        names = {id(c.value): c.name for c, _ in self.before}
        for target, state in self.lists:
            items = next(items for c, items in self.before if c.value is target)
            if target.rows is not state[0] or (target.rows is None and list.__len__(target) != len(items)):
                target.name = names[id(target)]
                raise Grows(target, target.samples(), len(items) if state[0] is None else state[3], target.peak_length())
        for c, items in self.before:
            if not c.has(items, keys_only=True):
                error = refusal(c.name)
                error.wants_lists, error.wants_keys = c.kind in ("list", "deque"), c.kind in ("dict", "set")
                raise error

    def refuse_changes(self) -> None:
        """Raise TraceError if a container has other items than before."""
        for c, items in self.before:
            if not c.has(items):
                raise refusal(c.name)

    def changed(self) -> set[int]:
        """Return the ids of the containers that have other items than before."""
        return {id(c.value) for c, items in self.before if not c.has(items)}

    def restore(self) -> None:
        """Give the containers the items of before."""
        for target, state in self.lists:
            target.set_state(state)
        for c, items in self.before:
            c.restore(items)


class Reference:
    """A container that stands for itself in a tree."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"a {type(self.value).__name__}"


def dereferenced(value: Any) -> Any:
    """Return a tree with the containers themselves in place of references."""
    kind = type(value)
    if kind is Reference:
        return value.value
    if kind is list or (kind is tuple and value):
        inside = [dereferenced(x) for x in value]
        if kind is list:
            return GrowingList(inside)
        return value if all(a is b for a, b in zip(inside, value, strict=True)) else kind(inside)
    if kind is dict:
        pairs = {k: dereferenced(x) for k, x in value.items()}
        return value if all(pairs[k] is value[k] for k in value) else pairs
    if issubclass(kind, Tagged):
        cases = [dereferenced(x) for x in value.cases]
        return value if all(a is b for a, b in zip(cases, value.cases, strict=True)) else value.with_cases(cases)
    return value


def _title(slot: Slot) -> str:
    container, key = slot.container, slot.key
    return f"{container.name}.{key}" if container.kind in ("object", "slots") else f"{container.name}[{key!r}]"


def keep(values: Iterable[Any]) -> None:
    """Refuse later changes of the containers in values, of which one may be another."""
    effects = frame_of().root.names.effects
    for container in containers_in(("", value) for value in values):
        effects.kept[id(container.value)] = container.value
        effects.watch(partial(container.has, container.items), COPY)


def shares_containers(values: Iterable[Any]) -> bool:
    """Return whether one container is in two of the values."""
    counts = Counter(id(c.value) for value in values for c in containers_in([("", value)]))
    return any(count > 1 for count in counts.values())


def refuse_changed(values: Iterable[Any], changed: set[int]) -> None:
    """Raise TraceError if one of the containers in values is one of those that changed, by their ids."""
    for container in containers_in(("", value) for value in values) if changed else ():
        if id(container.value) in changed:
            raise TraceError("a list, dict or object that a branch or loop on traced values changes gets another name; copy it")


def refusal(name: str) -> TraceError:
    """Return the error for a container that a block changes."""
    error = effect(f"a branch or loop on traced values changes {name}; rebind the name instead", user_loc())
    error.wants_traced = True
    return error


def refuse_objects(values: Iterable[Any], name: str) -> None:
    """Raise TraceError if a place, of which values decide the content, holds a list, dict or object, which would be a copy."""
    for container in containers_in((name, value) for value in values):
        raise TraceError(
            f"{name} is a {type(container.value).__name__} that values decide, which would be a copy; store numbers or arrays"
        )


class OutsideContents:
    """The contents of containers from outside before a block, ``besides`` those of some ids, whose changes others undo."""

    def __init__(self, stores: ContainersOfCall, besides: Collection[int]) -> None:
        self._stores = stores
        met = [Container(changing_part(copy), label) for label, copy, _ in stores.outside_copies()]
        self._known = {*besides, *(id(changing_part(copy)) for _, copy, _ in stores.outside_copies())}
        self._saved = Saved([(c, c.items) for c in met if id(c.value) not in besides])

    def restore(self) -> None:
        """Give the containers that were met before the block what they had then, and those that were met since what they held
        outside."""
        self._saved.restore()
        for describe, copy, items in self._stores.outside_copies():
            part = changing_part(copy)
            if id(part) not in self._known:
                if isinstance(part, GrowingList) and part.outside is not None:
                    part.set_state(part.outside)
                    continue
                if isinstance(part, GrowingList):
                    part.rows = None
                container = Container(part, describe)
                container.restore([(x, True) for _, x in items] if container.kind == "set" else items)
