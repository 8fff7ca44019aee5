"""Containers among the arguments of a call, which the traced function may change.

The function runs on copies. What it leaves in them are results of the trace, and a call that succeeds gives the caller's
containers these contents. A container is one object under all its names: in several arguments, in others, and in the result.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import Frame, current
from pullback.tracer.arrays.mixed_numbers import result_of
from pullback.tracer.arrays.object_results import ObjectResult, is_object_result
from pullback.tracer.arrays.traced import Appended, Assigned, Elements, Keyed, Listed, TracedArray, has_rows
from pullback.tracer.arrays.tree import (
    LEAF,
    NAMESPACES,
    Container,
    OnlyAppended,
    TreeDef,
    assembled,
    bare,
    children_of,
    container_of,
    element_key,
    is_stand_in,
    real_class,
    register,
    structure_of,
    unflatten,
)
from pullback.tracer.names.places import DELETED, NewVariables, Place, PlaceKind, arrays_of, refusal
from pullback.tracer.names.side_effects import effect, is_same_contents, items_of
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import GENERATED, attribute_names

ROWS_OF_OBJECTS = (
    "a branch or loop on traced values changes the argument {}, a list of arrays or containers, after which its elements would "
    "be other objects; pass one array, or return a new list"
)


@dataclass(frozen=True, kw_only=True)
class Mutable:
    """A kind of containers whose changes reach the caller's.

    ``classes``: the classes of the containers. ``empty`` returns a container of a structure without contents, and
    ``fill(container, contents)`` gives one the contents of another.
    """

    classes: tuple[type, ...]
    empty: Callable[[TreeDef], Any]
    fill: Callable[[Any, Any], None]


Steps = tuple[Any, ...]
"""The keyword or position of an argument, and the keys of the dicts in it that lead to a list."""


def _fill_list(target: Any, contents: Any) -> None:
    target[:] = contents


def _fill_dict(target: Any, contents: Any) -> None:
    target.clear()
    for key, value in contents.items():  # ``update`` of a Counter adds
        target[key] = value


def _fill_namespace(target: Any, contents: Any) -> None:
    _fill_dict(vars(target), vars(contents))


def _empty_dict(tree: TreeDef) -> Any:
    return defaultdict(tree.data[1]) if tree.type is defaultdict else tree.type()


def _fill_deque(target: Any, contents: Any) -> None:
    target.clear()
    target.extend(contents)


def _fill_set(target: Any, contents: Any) -> None:
    keys = set(map(element_key, contents))
    target.difference_update([x for x in target if element_key(x) not in keys])  # an equal one may have another type
    for x in contents:  # in the order in which they were added
        target.add(x)


def _fill_object(target: Any, contents: Any) -> None:
    names = attribute_names(contents)
    for name in attribute_names(target):
        if name not in names:
            object.__delattr__(target, name)
    for name in names:
        object.__setattr__(target, name, getattr(contents, name))


def _fill_attributes(target: Any, contents: Any) -> None:
    if not isinstance(contents, dict):
        contents = {name: getattr(contents, name) for name in attribute_names(contents)}
    for field in dataclasses.fields(target):
        if field.name not in contents and field.name in attribute_names(target):
            object.__delattr__(target, field.name)
    for name, value in contents.items():
        object.__setattr__(target, name, value)


MUTABLE = (
    Mutable(classes=(list,), empty=lambda tree: [], fill=_fill_list),
    Mutable(classes=(dict, OrderedDict, defaultdict, Counter), empty=_empty_dict, fill=_fill_dict),
    Mutable(classes=(deque,), empty=lambda tree: deque(maxlen=tree.data if tree.kind == "deque" else None), fill=_fill_deque),
    Mutable(classes=(set,), empty=lambda tree: set[Any](), fill=_fill_set),
    Mutable(classes=NAMESPACES, empty=lambda tree: tree.type(), fill=_fill_namespace),
)
"""The kinds of containers that calls may change. A container of another kind is refused when it changes."""
def _assign(target: Any, contents: Any) -> None:
    for key, value in contents:
        target[key] = value


_WHOLE = Mutable(classes=(), empty=lambda tree: None, fill=lambda target, contents: None)
"""An object that is stored, and does not change."""
LONGER = Mutable(classes=(Appended,), empty=lambda tree: [], fill=list.extend)
"""Lists that calls only make longer."""
_OBJECTS = Mutable(classes=(), empty=lambda tree: object.__new__(tree.data[1][0]), fill=_fill_object)
"""Objects of the user's classes that the traced function made."""
_NEW_DATACLASSES = Mutable(classes=(), empty=lambda tree: object.__new__(tree.type), fill=_fill_object)
"""Objects of dataclasses that the traced function made."""
_DATACLASSES = Mutable(classes=(), empty=lambda tree: object.__new__(tree.type), fill=_fill_attributes)
"""Objects of dataclasses among the arguments, whose contents are a dict of attributes."""


ASSIGNED = Mutable(classes=(Assigned,), empty=lambda tree: {}, fill=_assign)
"""Dicts to which calls only assign items."""
_ADDED: dict[type, tuple[Mutable, Callable[..., Any]]] = {
    list: (LONGER, Appended), dict: (ASSIGNED, Assigned), defaultdict: (ASSIGNED, Assigned), OrderedDict: (ASSIGNED, Assigned),
}  # fmt: skip


def _made_empty(value: Keyed) -> Callable[[], Any]:
    """Return a function that makes an empty dict of the kind of one with keys by value."""
    kind, factory = value.kind
    return kind if factory is None else partial(kind, factory)


def _is_plain(x: Any) -> bool:
    """Return whether an element of a set is the same in a trace."""
    if type(x) is tuple:
        return all(map(_is_plain, x))
    return x is None or type(x) in (bool, int, float, complex, str, bytes) or isinstance(x, np.generic)


def _same(value: Any) -> Any:
    return value


def mutable_of(kind: Any) -> Mutable | None:
    """Return how containers of a class are changed; None for other classes."""
    record = next((record for record in (*MUTABLE, LONGER) if kind in record.classes), None)
    return _DATACLASSES if record is None and _is_mutable_dataclass(kind) else record


def _is_mutable_dataclass(kind: Any) -> bool:
    """Return whether objects of a class are those of a dataclass that is not frozen, and trees of their fields."""
    parameters = getattr(kind, "__dataclass_params__", None) if isinstance(kind, type) else None
    return parameters is not None and not parameters.frozen and container_of(kind) is None and not is_stand_in(kind)


def _record_of(value: Any) -> Mutable | None:
    """Return how what a trace made is changed; None for what cannot be changed."""
    if is_object_result(value):
        return _OBJECTS
    record = mutable_of(class_of(value))
    return _NEW_DATACLASSES if record is _DATACLASSES else record


@dataclass(frozen=True, kw_only=True, eq=False)
class Fill:
    """A container that a call gives contents: number ``index`` of the objects, a container ``of`` a kind."""

    index: int
    of: Mutable


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPlace:
    """A place of a kind outside, ``key`` of what ``owner()`` returns, to which a call stores. ``is_decided``: values decide
    whether it does. ``since``: see ``Place``; None if values decide it."""

    kind: PlaceKind
    owner: Callable[[], Any]
    key: Any
    describe: str
    is_deleted: bool
    is_decided: bool
    since: int | None

    def in_order(self, content: Any) -> int:
        """Return since when the place holds what a call stores there."""
        return content[0] if self.since is None else self.since

    def store(self, owner: Any, content: Any) -> None:
        """Store a value, or delete what is there. ``content``: since when, if values decide that, whether they decide that it is
        stored, if they do, and the value."""
        *decided, value = content if self.is_decided or self.since is None else (content,)
        if self.is_decided and not decided[-1]:
            return
        if self.is_deleted or (self.in_order(content) % 2 and self.kind.holds(owner, self.key)):
            self.kind.delete(owner, self.key)
        if not self.is_deleted:
            self.kind.write(owner, self.key, value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stores:
    """What a call stores in containers.

    The objects are the caller's containers, in the order of the arguments, and then new ones, which are met more than once.
    ``paths``: the expressions that read the former, with ``values`` for the names in them, and ``pattern``, for each, the first
    object that it is. ``new``: the functions that make the latter. ``fills``: the containers that get contents, whose structures
    are ``trees``, in their order; ``labels`` are the names of the caller's among them, and ``titles`` descriptions. ``places``:
    those outside to which the call stores, whose structures come after them in ``trees``.
    ``appended``: the lists, in dicts, that got longer and are otherwise what they were. ``repeated``: the leaves of the call that
    are met again in a container that is met again.
    """

    paths: tuple[str, ...]
    values: Mapping[str, Any]
    pattern: tuple[int, ...]
    new: tuple[Callable[[], Any], ...]
    fills: tuple[Fill, ...]
    trees: tuple[TreeDef, ...]
    labels: tuple[str, ...]
    titles: tuple[str, ...]
    appended: tuple[Steps, ...] = ()
    repeated: frozenset[int] = frozenset()
    places: tuple[StoredPlace, ...] = ()

    @cached_property
    def _read(self) -> Callable[[Any, Any], tuple[Any, ...]]:
        text = f"lambda args, kwargs: ({''.join(f'{path}, ' for path in self.paths)})"
        read: Callable[[Any, Any], tuple[Any, ...]] = eval(compile(text, GENERATED, "eval"), dict(self.values))
        return read

    @property
    def names(self) -> list[str]:
        """The description of each container that gets contents, and of each place."""
        new = len(self.fills) - len(self.labels)
        places = (target.describe for target in self.places)
        return [*self.titles, *["a new container"] * new, *places]

    @property
    def changes_outside(self) -> list[str]:
        """The names of what a call changes outside of its arguments."""
        inside = (title == f"argument {label}" for title, label in zip(self.titles, self.labels, strict=True))
        containers = [label for label, is_argument in zip(self.labels, inside, strict=True) if not is_argument]
        return [*(target.describe for target in self.places), *containers]

    @property
    def changes(self) -> tuple[str, ...]:
        """The names of what a call changes."""
        return *self.labels, *(target.describe for target in self.places)

    def containers(self, arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> tuple[Any, ...]:
        """Return the containers of a call."""
        return self._read(*arguments)

    def fits(self, containers: Sequence[Any]) -> bool:
        """Return whether the same containers of a call are one object as in the trace."""
        return _pattern(containers) == self.pattern

    def objects(self, containers: Sequence[Any]) -> list[Any]:
        """Return the objects of a call: its containers and new empty ones."""
        return [*containers, *(make() for make in self.new)]

    def store(self, objects: Sequence[Any], contents: Sequence[Any]) -> None:
        """Give containers their contents, and store to the places, which are found before anything is stored."""
        count = len(self.fills)
        owners = [target.owner() for target in self.places]
        for fill, items in zip(self.fills, contents[:count], strict=True):
            fill.of.fill(objects[fill.index], items)
        places = list(zip(self.places, owners, contents[count:], strict=True))
        if self._has_new:
            places.sort(key=lambda x: x[0].in_order(x[2]))
        for target, owner, content in places:
            target.store(owner, content)

    @cached_property
    def _has_new(self) -> bool:
        """Whether calls store to places that hold nothing before."""
        return any(target.since != 0 for target in self.places)


def _with_attributes(copy: Any, record: Mutable) -> Any:
    """Return what a container of a kind is filled with: of a dataclass, a dict of all attributes."""
    return {name: getattr(copy, name) for name in attribute_names(copy)} if record is _DATACLASSES else copy


def _content_of(target: Place) -> Any:
    """Return what a call stores in a place, with since when, and whether it does, if values decide these."""
    value = None if target.stored is DELETED else target.stored
    since = () if isinstance(target.since, int) else (target.since,)
    is_stored = () if target.is_stored is True else (target.is_stored,)
    return (*since, *is_stored, value) if since or is_stored else value


def items_in(copy: Any) -> Any:
    """Return the items of a container with their keys; for a dict with keys by value, those of the list of its items."""
    return items_of(changing_part(copy))


def _frame_of_lists(frame: Frame | None) -> Any:
    """Return the frame whose statements make lists from outside longer: the innermost one that is no block of a statement."""
    while frame is not None and frame.takes_writes and frame.parent is not None:
        frame = frame.parent
    return frame


def children_in(copy: Any) -> list[Any]:
    """Return the items of a container, none of one whose items are rows of arrays."""
    part = changing_part(copy)
    items = None if has_rows(part) else items_of(part)
    return [] if items is None else [x for _, x in items]


def changing_part(copy: Any) -> Any:
    """Return the container of the trace that changes with a copy: for one without contents what is added to it, for a dict with
    keys by value the list of its items."""
    if type(copy) is Appended:
        return copy.new
    return copy.pairs if type(copy) is Assigned else copy.entries if isinstance(copy, Keyed) else copy


def _pattern(containers: Sequence[Any]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(x), k) for k, x in enumerate(containers))


class ContainersOfCall:
    """The containers of a call's arguments in a trace: the copies on which the function runs.

    ``copies`` has for each container, in the order of the arguments, its copy, which is one object for one container.
    ``in_blocks``: the ids of containers that blocks of branches and loops change.
    ``are_outside``: those that are added now are reached through objects from outside.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._outside: set[int] = set()
        self.copies: list[Any] = []
        self.paths: list[str] = []
        self.labels: list[str] = []
        self.values: dict[str, Any] = {}
        self._records: list[Mutable] = []
        self._steps: list[Steps | None] = []
        self._leaf, self._repeated = 0, set[int]()
        self._copy_of: dict[int, Any] = {}
        self._before: list[Any] = []
        self._originals: list[Any] = []
        self.is_compared = False
        self.in_blocks: set[int] = set()
        self.are_outside = False

    # copies

    def copied(
        self, tree: TreeDef, value: Any, leaves: Iterator[Any], path: str, label: str, steps: Steps | None = None
    ) -> Any:
        """Return a copy of an argument, of a structure, with other leaves. ``path``: the expression that reads it in a call, and
        ``steps`` the same as steps, None if there are none."""
        if isinstance(value, Keyed):  # of a function around this one
            for _ in range(tree.count):
                next(leaves)
            return value
        if tree.kind == "leaf":
            self._leaf += 1
            return next(leaves)
        if tree.kind in ("static", "named", "labelled", "registered"):
            self._leaf += tree.count
            return unflatten(tree, [next(leaves) for _ in range(tree.count)])
        record = LONGER if tree.kind == "appended" else mutable_of(tree.type)
        if record is not None and id(value) in self._copy_of:
            self._repeated.update(range(self._leaf, self._leaf + tree.count))
            self._leaf += tree.count
            for _ in range(tree.count):
                next(leaves)
            self._add(record, value, self._copy_of[id(value)], path, label, None)
            return self._copy_of[id(value)]
        at = len(self.copies)
        if record is not None:
            self._add(record, value, None, path, label, steps)
        step = ".{}" if tree.kind == "dataclass" else "[{!r}]"
        children = []
        inside_of = [] if tree.kind == "appended" else children_of(tree, value)
        for k, (key, child, inside) in enumerate(zip(tree.keys, tree.children, inside_of, strict=True)):
            index = k if tree.kind == "namedtuple" else key
            if type(index) not in (int, str):
                index = self._named(index)
                read = f"{path}[{index}]"
            else:
                read = path + step.format(index)
            inner = (*steps, key) if steps is not None and tree.type is dict else None
            children.append(self.copied(child, inside, leaves, read, f"{label}{step.format(key)}", inner))
        copy = assembled(tree, children)
        if tree.kind == "appended":
            copy = self._growing(copy)
        if record is not None:
            if tree.kind == "list" and self._frame.root.rolls:
                copy = operator_called(PREFIX + "list")(copy)
            if tree.kind == "deque" and tree.data is None and self._frame.root.rolls:
                copy = operator_called(PREFIX + "new")(deque, list(copy))
            if tree.kind == "set":
                if not all(map(_is_plain, value)):
                    raise TraceError(f"the argument {label} is a set of objects; pass one of numbers, strings, or tuples of them")
                copy = value.copy()
                if self._frame.root.rolls:
                    copy = operator_called(PREFIX + "set")(partial(_same, copy), partial(list, copy))
            if tree.type is dict and self._frame.root.rolls:
                copy = operator_called(PREFIX + "dict")(partial(_same, copy), partial(tuple, copy.items()))
            self.copies[at] = self._copy_of[id(value)] = copy
        return copy

    def _growing(self, copy: Any) -> Any:
        """Return a list or dict without contents, to which blocks may add."""
        if self._frame.root.rolls:
            with self._frame.active():
                new: list[Any] = operator_called(PREFIX + "list")([])
            if isinstance(new, Listed):
                new.home = _frame_of_lists(current())  # type: ignore[attr-defined]
            if type(copy) is Appended:
                copy.new = new
            else:
                copy.pairs = new
        return copy

    def _named(self, key: Any) -> str:
        name = f"key{len(self.values)}"
        self.values[name] = key
        return name

    def _add(
        self, record: Mutable, value: Any, copy: Any, path: str, label: str, steps: Steps | None, is_outside: bool = False
    ) -> None:  # fmt: skip
        if is_outside or self.are_outside:
            self._outside.add(len(self.copies))
        self._steps.append(steps)
        self._originals.append(value)
        self.copies.append(copy)
        self.paths.append(path)
        self.labels.append(label)
        self._records.append(record)

    def begin(self) -> None:
        """Note the contents before the function runs."""
        self._before = list(map(items_in, self.copies))

    def close(self) -> None:
        """Drop the references to the containers of the call, which is in cycles with the trace."""
        for values in (self._originals, self.copies, self._before):
            values.clear()
        self._copy_of.clear()

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of the copies, or the list of the items of one."""
        return any(copy is value or (isinstance(copy, Keyed) and copy.entries is value) for copy in self.copies)

    def all_pairs(self) -> list[tuple[Any, Any]]:
        """Return the containers, each with its copy."""
        return list(zip(self._originals, self.copies, strict=True))

    def pairs(self) -> list[tuple[Any, Any, Mutable]]:
        """Return the containers that changed, each with its copy and its kind."""
        return [(self._originals[k], self.copies[k], self._records[k]) for k in self.changed()]

    # containers from outside

    def known(
        self, value: Any, read: Callable[[], Any], label: str, is_added: bool, elements: Callable[[], Elements]
    ) -> Any:  # fmt: skip
        """Return the copy of a container from outside that has one, of an argument too, or, if the function only adds to it
        (``is_added``), one without contents, a list with those ``elements`` that it reads; None if there is none."""
        copy = self._copy_of.get(id(value))
        record = mutable_of(type(value))
        if copy is None and is_added and record is not None and type(value) in _ADDED:
            record, make = _ADDED[type(value)]
            copy = self._copy_of[id(value)] = self._growing(make(elements()) if type(value) is list else make())
        elif copy is None or record is None:
            return None
        else:
            record = self._records[next(k for k, x in enumerate(self.copies) if x is copy)]
        first = next((k for k, x in enumerate(self.copies) if x is copy), None)
        before = items_in(copy) if first is None else self._before[first]  # a block may have changed it
        self._add(record, value, copy, f"{self._named(read)}()", label, None, is_outside=True)
        self._before.append(before)
        return copy

    def has_copy(self, value: Any) -> bool:
        """Return whether a container of the call or from outside has a copy."""
        return id(value) in self._copy_of

    def outside(self, value: Any, copy: Any, read: Callable[[], Any], label: str, is_stored: bool) -> Any:
        """Return a copy of a container from outside, whose changes reach the container. ``is_stored``: it is known to change."""
        record = mutable_of(type(value))
        if record is None:
            raise TraceError(f"{label} is a {type(value).__name__}, which is not read; use an ordinary list, dict or set")
        if is_stored and self._frame.root.rolls:
            with self._frame.active():
                if type(copy) is list:
                    copy = operator_called(PREFIX + "list")(copy)
                elif type(copy) is deque and copy.maxlen is None:
                    copy = operator_called(PREFIX + "new")(deque, list(copy))
                elif type(copy) is dict:
                    copy = operator_called(PREFIX + "dict")(partial(_same, copy), partial(tuple, copy.items()))
                elif type(copy) in (Counter, defaultdict):
                    kind = (type(copy), copy.default_factory) if type(copy) is defaultdict else (type(copy),)
                    items, copy = list(copy.items()), operator_called(PREFIX + "new")(*kind)
                    _assign(copy, items)
                elif type(copy) is set:
                    copy = operator_called(PREFIX + "set")(partial(_same, copy), partial(list, copy))
        if isinstance(changing_part(copy), Listed):
            changing_part(copy).home = _frame_of_lists(current())
        if not is_stored and isinstance(copy, dict | set):
            self._frame.root.plain_dicts.add(label)
        if not is_stored and type(copy) is list:
            self._frame.root.plain_lists.add(label)
        self._copy_of[id(value)] = copy
        self._add(record, value, copy, f"{self._named(read)}()", label, None, is_outside=True)
        self._before.append(items_in(copy))
        return copy

    def changed_outside(self) -> list[tuple[str, bool]]:
        """Return the names of the containers from outside that changed, each with whether items may only have been added."""
        changed = [k for k in self.changed() if k in self._outside]
        return [(self.labels[k], self._may_be_added(self.copies[k], self._before[k])) for k in changed]

    @staticmethod
    def _may_be_added(copy: Any, before: Any) -> bool:
        items = None if has_rows(copy) else items_in(copy)
        if type(copy) is Assigned or items is None or len(items) < len(before):
            return items is not None
        if isinstance(copy, list):
            return len(items) > len(before) and is_same_contents(items[: len(before)], before)
        return isinstance(copy, dict) and all(a[0] is b[0] or a[0] == b[0] for a, b in zip(items, before, strict=False))

    def outside_copies(self, is_stored: bool = False) -> list[tuple[str, Any, Any]]:
        """Return the copies of containers from outside, each with its name and the items before the function; with ``is_stored``
        those that are known to change."""
        known = self._frame.root.names.is_stored if is_stored else lambda label: True
        return [(self.labels[k], self.copies[k], self._before[k]) for k in sorted(self._outside) if known(self.labels[k])]

    def join(self, contents: Mapping[int, tuple[Any, Any]], containers: Collection[int]) -> None:
        """Trace again if a block, since the time of ``contents``, changed a container from outside that was not known to change,
        or that is none of its state, the ``containers`` by their ids: the function in one case, the statement in the other."""
        for describe in self.changed_since(contents):
            self._frame.root.names.change_again(describe)
        for describe in self.changed_since(contents, containers):
            raise NewVariables(describe)

    def move_lists(self, frame: Frame, homes: Mapping[int, Any]) -> dict[int, Any]:
        """Make a frame, or, for lists that are in ``homes`` by their ids, another one, that of the lists from outside, whose
        statements make them longer. Return the frames of before."""
        before: dict[int, Any] = {}
        for _, copy, _ in self.outside_copies():
            part = changing_part(copy)
            if isinstance(part, Listed):
                before[id(part)] = part.home  # type: ignore[attr-defined]
                part.home = homes.get(id(part), _frame_of_lists(frame))  # type: ignore[attr-defined]
        return before

    def stored_copies(self) -> list[tuple[str, Any]]:
        """Return the copies of containers from outside that are known to change, each with its name."""
        return [(label, copy) for label, copy, _ in self.outside_copies(is_stored=True)]

    def is_outside(self, k: int) -> bool:
        """Return whether a container comes from outside."""
        return k in self._outside

    def items_before(self, k: int) -> Any:
        """Return the items of a container before the function."""
        return self._before[k]

    def _title(self, k: int) -> str:
        return self.labels[k] if k in self._outside else f"argument {self.labels[k]}"

    def contents_outside(self, is_stored: bool = False) -> dict[int, tuple[Any, Any]]:
        """Return the copies of containers from outside with their items, by their ids. ``is_stored``: see ``outside_copies``."""
        return {id(copy): (copy, items_in(copy)) for _, copy, _ in self.outside_copies(is_stored)}

    def changed_since(
        self, contents: Mapping[int, tuple[Any, Any]], besides: Collection[int] = (), is_stored: bool = False
    ) -> list[str]:  # fmt: skip
        """Return the names of the containers from outside that have other items than at the time of ``contents``, ``besides``
        those of some ids. ``is_stored``: see ``outside_copies``."""
        return [
            describe
            for describe, copy, items in self.outside_copies(is_stored)
            if id(changing_part(copy)) not in besides
            and not is_same_contents(items_in(copy), contents[id(copy)][1] if id(copy) in contents else items)
        ]

    # changes

    def changed(self) -> list[int]:
        """Return the containers that have other contents than before, by their numbers, each once."""
        pattern = _pattern(self.copies)
        return [k for k, copy in enumerate(self.copies) if pattern[k] == k and self._is_changed(copy, self._before[k])]

    def _is_changed(self, copy: Any, before: Any) -> bool:
        if before is None:
            return False
        if not has_rows(copy):
            return not is_same_contents(items_in(copy), before)
        if copy.rows.depth:
            return False  # it has the same lists, which may have other contents
        if copy.outside is not None:
            return not copy.is_as_outside()
        return not (copy.is_as_stacked() and copy.length() == len(before))

    def _is_longer(self, k: int) -> bool:
        """Return whether a list got longer and is otherwise what it was."""
        copy, before = self.copies[k], self._before[k]
        if not self._steps[k] or class_of(copy) is not list or has_rows(copy):
            return False
        items = items_in(copy)
        return items is not None and len(items) > len(before) and is_same_contents(items[: len(before)], before)

    def stores(
        self, result: Any, places: Sequence[Place] = (), arrays: Sequence[OutsideObject] = (),
        objects: Sequence[OutsideObject] = (),
    ) -> Written | None:  # fmt: skip
        """Return what the function stores, with its result; None if it changed no container and no place, compared no two
        containers by ``is``, each container is one argument, and the result has none of ``objects``. ``arrays``: the arrays from
        outside, which are stored as the objects that they are, like ``objects``, those of the call."""
        changed = self.changed()
        own = [traced for _, _, traced, _ in arrays]
        contents = Contents(self.copies, Identities(own, places))
        is_one_each = not self.is_compared and _pattern(self.copies) == tuple(range(len(self.copies)))
        if not changed and not places and is_one_each:
            result_alone = Contents(self.copies, Identities((), ()))
            if objects:
                result_alone.count([result], [])
            if not any(result_alone.has_met(stand_in) for _, _, stand_in, _ in objects):
                return None
        stored = list(map(_content_of, places))
        contents.count([result, *stored], [self.copies[k] for k in changed])
        outside = [self.copies[k] for k in changed if k in self._outside]
        in_blocks = [copy for copy in outside if id(changing_part(copy)) in self.in_blocks]
        contents.refuse_other_names([p.stored for p in places if p.is_variable], in_blocks)
        self._add_outside((*arrays, *objects), contents)
        for k in changed:
            items = changing_part(self.copies[k])
            if has_rows(items) and items.holds_objects():
                error = effect(ROWS_OF_OBJECTS.format(self.labels[k]), user_loc())
                error.wants_lists = True
                raise error
        out_tree = contents.tree(result)
        fills = [Fill(index=k, of=self._records[k]) for k in changed]
        trees = [contents.below(_with_attributes(self.copies[k], self._records[k])) for k in changed]
        first = len(contents.leaves)
        place_trees = [contents.tree(value) for value in stored]
        end = len(contents.leaves)
        new: list[Callable[[], Any]] = []
        for value in contents.shared:  # the structure of one may add others
            record = _record_of(value)
            assert record is not None
            fills.append(Fill(index=len(self.copies) + len(new), of=record))
            trees.append(contents.below(value))
            new.append(_made_empty(value) if isinstance(value, Keyed) else partial(record.empty, trees[-1]))
        order = [*range(first), *range(end, len(contents.leaves)), *range(first, end)]  # of the leaves in the order of the trees
        numbers = {k: n for n, k in enumerate(order)}
        out_tree, *trees = [_renumbered(tree, numbers) for tree in (out_tree, *trees, *place_trees)]
        stores = Stores(
            paths=tuple(self.paths), values=self.values, pattern=_pattern(self.copies), new=tuple(new), fills=tuple(fills),
            trees=tuple(trees), labels=tuple(self.labels[k] for k in changed),
            titles=tuple(self._title(k) for k in changed),
            appended=tuple(self._steps[k] or () for k in changed if self._is_longer(k)),
            repeated=frozenset(self._repeated),
            places=tuple(
                StoredPlace(
                    kind=p.kind, owner=p.owner, key=p.key, describe=p.describe, is_deleted=p.stored is DELETED,
                    is_decided=p.is_stored is not True, since=p.since if isinstance(p.since, int) else None,
                )
                for p in places
            ),
        )  # fmt: skip
        return Written(stores=stores, out_tree=out_tree, leaves=[contents.leaves[k] for k in order])


    def _add_outside(self, outside: Sequence[OutsideObject], contents: Contents) -> None:
        """Make the arrays and objects from outside that are stored objects of the call."""
        for read, real, traced, describe in outside:
            if contents.has_met(traced):
                self._add(_WHOLE, real, traced, f"{self._named(read)}()", describe, None)
                self._before.append(None)
                contents.add_object(traced, len(self.copies) - 1)


def _renumbered(tree: TreeDef, numbers: Mapping[int, int]) -> TreeDef:
    """Return a structure with other numbers of leaves that are met again."""
    if tree.kind == "same leaf":
        return TreeDef("same leaf", data=numbers[tree.data], key=numbers[tree.data])
    children = [_renumbered(child, numbers) for child in tree.children]
    if all(a is b for a, b in zip(children, tree.children, strict=True)):
        return tree
    return TreeDef(tree.kind, tree.type, tree.data, tree.key[2], children)


OutsideObject = tuple[Callable[[], Any], Any, Any, str]
"""A function that reads an array or an object from outside, it, what is traced for it, and its description."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """What a function stores, and the structure of its result; ``leaves``: those of the result and then of the contents."""

    stores: Stores
    out_tree: TreeDef
    leaves: list[Any]


class OneOf:
    """An array that a call stores, which is the first of ``arrays`` whose condition holds, else ``rest``."""

    def __init__(self, conditions: Sequence[Any], arrays: Sequence[Any], rest: Any) -> None:
        self.conditions, self.arrays, self.rest = conditions, arrays, rest


def _one_of(count: int, children: Sequence[Any]) -> Any:
    """Return the array of a call that is stored."""
    rest = children[-1]
    return next((array for condition, array in zip(children[:count], children[count:-1], strict=True) if condition), rest)


register(
    Container(
        type=OneOf,
        flatten=lambda x: ((*x.conditions, *x.arrays, x.rest), len(x.conditions)),
        unflatten=_one_of,
    )
)


class Identities:
    """Which arrays that a function stores may be one of others: ``outside`` are the arrays from outside that are no arguments."""

    def __init__(self, outside: Sequence[TracedArray], places: Sequence[Place]) -> None:
        self._outside = {id(x) for x in outside}
        self._unstored = {(id(x), id(y)) for p in places for x in arrays_of(p.stored) for y in p.unstored_arrays()}

    def others(self, x: TracedArray, met: Collection[int]) -> list[TracedArray]:
        """Return the arrays of the caller's, and those of ``met`` by their ids, that an array may be one of."""
        if x.base is not None:
            return []
        others = {id(y): y for y in (*x.aliases, *x.sources) if y is not x}
        return [y for y in others.values() if (self._is_callers(y) or id(y) in met) and (id(x), id(y)) not in self._unstored]

    def _is_callers(self, x: TracedArray) -> bool:
        return x.argument is not None or id(x) in self._outside

    def choices(self, x: TracedArray, met: Collection[int]) -> list[tuple[TracedArray, TracedArray]]:
        """Return the arrays of ``others`` that an array is under a condition that is known, each with the condition."""
        others = {id(y) for y in self.others(x, met)}
        return [(y, when) for y, when in x.same_as if id(y) in others]


class Contents:
    """The structures of values that may have objects in common: ``copies`` and new containers. A leaf that is met again is the
    same leaf. ``shared``: the new containers that are met more than once."""

    def __init__(self, copies: Sequence[Any], identities: Identities) -> None:
        self._copies = copies
        self._identities = identities
        self._chosen: dict[int, tuple[Any, Any]] | None = None
        self._numbers = {id(copy): k for k, copy in reversed(list(enumerate(copies)))}
        self._times: Counter[int] = Counter()
        self._met: set[int] = set()
        self._places: dict[int, int] = {}
        self._rows: dict[int, tuple[Any, Any]] = {}
        self.leaves: list[Any] = []
        self.shared: list[Any] = []

    def has_met(self, x: Any) -> bool:
        """Return whether a value was met in the count."""
        return id(x) in self._met

    def add_object(self, x: Any, index: int) -> None:
        """Make a value object ``index``."""
        self._numbers[id(x)] = index

    def count(self, values: Sequence[Any], contents: Sequence[Any]) -> None:
        """Count how often new containers are met in values and in the contents of containers."""
        for value in values:
            self._counted(value)
        for value in contents:
            self._counted_below(value)

    def refuse_other_names(self, stored: Sequence[Any], contents: Sequence[Any]) -> None:
        """Raise TraceError if an array that is stored outside may be one of others, and it is not known where it is. The
        structures have such arrays as choices from then on."""
        self._chosen = {}
        parts = [x for value in contents for x in children_in(value)]
        for x in (x for value in (*stored, *parts) for x in arrays_of(value)):
            known = {id(y) for y, _ in self._identities.choices(x, self._met)}
            if any(id(y) not in known for y in self._identities.others(x, self._met)):
                raise effect("an array that is stored outside may be one of several, as values decide; store a copy of it", x.loc)

    def _identified(self, x: TracedArray) -> Any:
        """Return an array, or the choice of those that it may be."""
        choices = self._identities.choices(x, self._met)
        if not choices:
            return x
        if self._chosen is None:  # these are met, if one is an array from outside
            self._met.update(id(y) for y, _ in choices)
            return x
        if id(x) not in self._chosen:
            rest = TracedArray(x.type, x.frame, x.value, weak=x.weak, loc=x.loc)
            self._chosen[id(x)] = x, OneOf([test for _, test in choices], [y for y, _ in choices], rest)
        return self._chosen[id(x)][1]

    def _counted(self, x: Any) -> TreeDef:
        """Count a value if it is a new container, and what is in it; return its structure up to containers met before."""
        self._met.add(id(x))
        if id(x) in self._numbers:
            return LEAF
        if _record_of(x) is not None:
            self._times[id(x)] += 1
            if self._times[id(x)] > 1:
                return LEAF
        return self._counted_below(x)

    def _counted_below(self, x: Any) -> TreeDef:
        return structure_of(self._without_rows(x), [], self._counted, static_numbers=True)

    def tree(self, x: Any) -> TreeDef:
        """Return the structure of a value, and append the leaves of it that are new to ``leaves``."""
        if id(x) not in self._numbers and self._times[id(x)] > 1:
            self._numbers[id(x)] = len(self._copies) + len(self.shared)
            self.shared.append(x)
        if id(x) in self._numbers:
            return TreeDef("object", data=self._numbers[id(x)], key=self._numbers[id(x)])
        if id(x) in self._places:
            return TreeDef("same leaf", data=self._places[id(x)], key=self._places[id(x)])
        return self.below(x)

    def below(self, x: Any) -> TreeDef:
        """Return the structure of a value with its children as objects and leaves that may have been met."""
        tree = structure_of(self._without_rows(x), self.leaves, self.tree, static_numbers=True)
        if tree is LEAF:
            self._places[id(x)] = len(self.leaves) - 1
        return bare(tree)

    def _without_rows(self, x: Any) -> Any:
        """Return a value; for a list with rows, or a dict with keys by value, what makes one in a call, and for a list that gets
        longer what it gets."""
        if isinstance(x, TracedArray):
            return self._identified(x) if x.shape or x.is_cell else result_of(x)
        if type(x) in (Appended, Assigned):
            return self._without_rows(changing_part(x))
        if type(x) is Counter:
            return dict(x)
        if is_object_result(x):
            if id(x) not in self._rows:
                names = attribute_names(x)
                self._rows[id(x)] = x, ObjectResult(real_class(type(x)), names, [getattr(x, name) for name in names])
            return self._rows[id(x)][1]
        if not has_rows(x) and not isinstance(x, Keyed):
            return deque(list.__iter__(x)) if class_of(x) is deque and isinstance(x, list) else x
        if id(x) not in self._rows:
            self._rows[id(x)] = x, x.result() if isinstance(x, Keyed) else x.columns()
        return self._rows[id(x)][1]


@contextmanager
def refusing_changes(frame: Frame, what: str, is_outside_stored: bool = False) -> Iterator[None]:
    """Raise TraceError if a function that is traced once, described by ``what``, changes a container of an argument of the
    functions around it in this context, or, unless ``is_outside_stored``, one from outside."""
    containers = [f.stores for f in frame.outward if f.stores is not None]
    before = {id(copy): (copy, items_in(copy)) for c in containers for copy in c.copies}
    yield
    for c in containers:
        for k, copy in enumerate(c.copies):
            items = before[id(copy)][1] if id(copy) in before else c.items_before(k)
            if not (is_outside_stored and c.is_outside(k)) and not is_same_contents(items_in(copy), items):
                changed = f"changes the argument {c.labels[k]}; return what is new, and change the argument after it"
                if c.is_outside(k):
                    frame.root.names.change_again(c.labels[k])
                    changed = f"changes {c.labels[k]}, which comes from outside; return what is new, and change it after the call"
                raise effect(f"{what} {changed}", user_loc())


@contextmanager
def refusing_outside(frame: Frame) -> Iterator[None]:
    """Raise TraceError if a function that is traced in this context, in a region, changes a container from outside although the
    region takes no stores."""
    around = [f.stores for f in frame.outward if f.stores is not None and f is not frame]
    before = [(stores, stores.contents_outside()) for stores in around]
    yield
    for stores, contents in () if frame.takes_stores else before:
        for describe in stores.changed_since(contents):
            if stores is frame.root.stores:
                frame.root.names.change_again(describe)
            raise refusal(describe, frame)


MOST_LENGTHS = 4
"""Number of traces in which a list only got longer, after which its contents are no input any more."""


class OnlyLonger:
    """The lists, in calls of one function, that the function only makes longer.

    A trace of a call with such a list knows nothing of its contents, and serves lists of all lengths. ``paths``: where these
    lists are. A function that needs the contents of one is traced with those of all from then on.
    """

    def __init__(self) -> None:
        self.paths: frozenset[Steps] = frozenset()
        self._counts: Counter[Steps] = Counter()
        self._is_closed = False

    def note(self, stores: Stores | None) -> None:
        """Note the lists that a trace made longer."""
        if stores is None or self._is_closed:
            return
        self._counts.update(stores.appended)
        self.paths = frozenset(steps for steps, count in self._counts.items() if count >= MOST_LENGTHS)

    def close(self) -> None:
        """Trace all calls with the contents of all lists from now on."""
        self._is_closed, self.paths = True, frozenset()

    def replaced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a call with ``OnlyAppended`` in place of these lists."""
        new_args, new_kwargs = list(args), dict(kwargs)
        for first, *keys in self.paths:
            where: Any = new_kwargs if isinstance(first, str) else new_args
            if first in new_kwargs if isinstance(first, str) else first < len(new_args):
                where[first] = _with_placeholder(where[first], keys)
        return new_args, new_kwargs


def _with_placeholder(value: Any, keys: Sequence[Any]) -> Any:
    """Return a value with a list in it replaced; the value itself if there is none."""
    if not keys:
        return OnlyAppended() if type(value) is list else value
    if type(value) is not dict or keys[0] not in value:
        return value
    inside = _with_placeholder(value[keys[0]], keys[1:])
    return value if inside is value[keys[0]] else {k: inside if k == keys[0] else x for k, x in value.items()}


def class_of(value: Any) -> Any:
    """Return the class that a container of a trace has in a call."""
    kind = type(value)
    return getattr(kind, "stands_for", kind) if real_class(kind) is kind else kind
