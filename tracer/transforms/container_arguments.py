"""Containers among the arguments of a function that is traced in a region: the function runs on copies, and after the region the
containers get the contents that the function left in these."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.tracer.arrays.mixed_numbers import mixed
from pullback.tracer.arrays.object_results import is_object_result
from pullback.tracer.arrays.traced import Appended, Assigned, Keyed, Listed, TracedArray, has_rows
from pullback.tracer.arrays.tree import (
    LEAF,
    NAMESPACES,
    Identity,
    TreeDef,
    assembled,
    flatten,
    is_stand_in,
    map_statics,
    structure_of,
)
from pullback.tracer.arrays.value_extents import is_inner
from pullback.tracer.arrays.views import may_be
from pullback.tracer.names.side_effects import is_same_contents
from pullback.tracer.stores import ContainersOfCall, changing_part, class_of, items_in, mutable_of
from pullback.tracer.transforms.region import Region, as_weak
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import attribute_names

BY_VALUE = (
    "a list among the arguments of a function that is differentiated gets a length that values decide; return what is new by "
    "has_aux=True"
)
KEYS_BY_VALUE = (
    "a dict among the arguments of a function that is differentiated gets keys that values decide; return what is new by "
    "has_aux=True"
)


def holds_mutable(tree: TreeDef) -> bool:
    """Return whether a structure has containers that a function may change."""
    is_mutable = tree.kind in ("list", "dict", "deque", "set", "appended", "dataclass") and mutable_of(tree.type) is not None
    return is_mutable or any(map(holds_mutable, tree.children))


class ContainerArguments:
    """The containers of a region's arguments."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.containers = region.inner.stores = ContainersOfCall(region.inner)
        self._columns: dict[int, list[TracedArray]] = {}
        self._converted: dict[int, tuple[Any, Any]] = {}
        self._outside: Mapping[int, Any] = {}

    def copied(self, value: Any, tree: TreeDef, leaves: Sequence[Any], label: str) -> Any:
        """Return a copy of an argument of a structure, with these leaves."""
        names = self.region.outer.root.names
        with self.region.inner.active():
            copy = self.containers.copied(map_statics(tree, names.argument, names.shadow), value, iter(leaves), label, label)
        names.effects.watch_argument(copy, label, self.containers.holds)
        return copy

    def filled(self, value: Any, tree: TreeDef, leaves: Sequence[Any], label: str) -> Any:
        """Return an argument of a structure with these leaves, and with copies of its containers if it has any."""
        return self.copied(value, tree, leaves, label) if holds_mutable(tree) else self.region.filled(tree, leaves, label)[0]

    def passed(self, value: Any, label: str) -> Any:
        """Return an argument that the region reads as it is outside, with copies of its containers."""
        if isinstance(value, TracedArray) or not _may_hold(value):
            return value
        leaves, tree = flatten(value, key=Identity)
        return self.copied(value, tree, leaves, label) if holds_mutable(tree) else value

    def begin(self) -> None:
        """Note the contents before the function runs, and those of places outside."""
        self.containers.begin()
        self._places = self.region.outer.root.names.places
        self._stored = self._places.contents()
        self._stores = self.region.outer.root.stores
        self._contents = {id(copy): (copy, items_in(copy)) for _, copy, _ in self._stores.outside_copies()}
        self._homes = self._stores.move_lists(self.region.inner, {})
        self.region.inner.takes_stores = self.region.outer.takes_stores

    def values(self, aux: Any) -> list[TracedArray]:
        """Return the values of the region that the containers, places outside and a tree hold after the function."""
        values: dict[int, TracedArray] = {}
        seen: dict[int, Any] = {}
        for _, copy, _ in self.containers.pairs():
            if isinstance(copy, Keyed):
                raise TraceError(KEYS_BY_VALUE, user_loc())
            self._collect(copy, values, seen)
        self._collect(aux, values, seen)
        for target in self._places.changed_since(self._stored):
            self._collect([*target.state()], values, seen)
        for copy in self._changed_outside():
            self._collect(copy, values, seen)
        return list(values.values())

    def _collect(self, x: Any, values: dict[int, TracedArray], seen: dict[int, Any]) -> None:
        if id(x) in seen:
            return
        seen[id(x)] = x
        if isinstance(x, TracedArray):
            for value in (x, *([] if x.type_tag is None else [x.type_tag]), *(when for _, when in x.same_as)):
                if self.region.holds(value):
                    values[id(value)] = value
            return
        for child in self._columns_of(x) if has_rows(x) else _parts(x)[1]:
            self._collect(child, values, seen)

    def _columns_of(self, x: Any) -> list[TracedArray]:
        """Return the columns of a list with rows, none of a list of lists; if values decide its length, its arrays and it.
        Raises TraceError if values decide the number of rows too."""
        if id(x) not in self._columns:
            with self.region.inner.active():
                if type(x.length()) is not int:
                    if x.rows.depth or any(is_inner(extent) for b in x.rows.buffers for extent in b.shape):
                        raise TraceError(BY_VALUE, user_loc())
                    self._columns[id(x)] = [*x.rows.buffers, x.length()]
                else:
                    count = 0 if x.rows.depth else len(x.rows.buffers)
                    self._columns[id(x)] = [x.column(k) for k in range(count)]
        return self._columns[id(x)]

    def store(self, outside: Mapping[int, Any]) -> None:
        """Give the containers what the function left in their copies; ``outside`` has the values outside the region by the ids of
        those inside."""
        pairs = self.containers.pairs()
        self._outside = outside
        self._stores.move_lists(self.region.outer, self._homes)
        self._converted = {id(copy): (copy, value) for value, copy in self.containers.all_pairs()}
        for value, copy, _ in pairs:
            self._fill(value, copy)
        for target in self._places.changed_since(self._stored):
            stored, is_stored, since = target.state()
            target.set_state((self.converted(stored), self.converted(is_stored), self.converted(since)))
        for copy in self._changed_outside():
            self._converted.setdefault(id(copy), (copy, copy))
            self._fill(copy, copy)

    def _changed_outside(self) -> list[Any]:
        """Return the copies of containers from outside that the function changed, each once."""
        copies: dict[int, Any] = {}
        for _, copy, items in self._stores.outside_copies():
            before = self._contents[id(copy)][1] if id(copy) in self._contents else items
            if not is_same_contents(items_in(copy), before):
                copies[id(copy)] = copy
        return list(copies.values())

    def converted(self, x: Any) -> Any:
        """Return a value of the region as one outside of it, with the containers themselves in place of their copies."""
        if id(x) in self._converted:
            return self._converted[id(x)][1]
        if isinstance(x, TracedArray):
            result = as_weak(self._outside.get(id(x), x), x)
            self._note_names(x, result)
            return result if x.type_tag is None else mixed(result, self.converted(x.type_tag), x.weak)
        if mutable_of(class_of(x)) is not None or is_object_result(x):
            self._converted[id(x)] = x, x
            self._fill(x, x)
            return x
        tree, children = _parts(x)
        new = list(map(self.converted, children))
        result = x if all(a is b for a, b in zip(children, new, strict=True)) else assembled(tree, new)
        self._converted[id(x)] = x, result
        return result

    def _note_names(self, x: TracedArray, result: TracedArray) -> None:
        """Note which arrays outside the region an array of the region may be, and under which conditions it is."""
        if result is x or x.base is not None:
            return
        others = [y for z in (*x.aliases, *x.sources) if (y := self._outer(z)) is not None and y is not result]
        if others and not result.aliases:
            may_be([(result, others)], ())
            pairs = [(self._outer(y), self._outer(when)) for y, when in x.same_as]
            result.same_as = tuple((y, when) for y, when in pairs if y is not None and when is not None)

    def _outer(self, x: TracedArray) -> TracedArray | None:
        """Return what an array is outside the region; None if it does not leave it."""
        return self._outside.get(id(x)) if self.region.holds(x) else x

    def _refuse_rows(self, target: Any) -> None:
        """Raise TraceError for a list of an object that gets a length that values decide, or trace once more, as a function that
        changes it."""
        for label, copy, _ in self._stores.outside_copies():
            if copy is target:
                self.region.outer.root.names.change_again(label, may_be_added=False)
        raise TraceError(BY_VALUE, user_loc())

    def _fill(self, target: Any, source: Any) -> None:
        """Give a container the contents of another, outside the region."""
        if has_rows(source) and not isinstance(target, Listed):
            self._refuse_rows(target)
        if has_rows(source):
            columns = [as_weak(self._outside.get(id(c), c), c) for c in self._columns_of(source)]
            if source.rows.depth:
                return
            if type(source.rows.length) is int:
                target.set_columns(source.rows, columns)
            else:
                target.set_buffers(source.rows, columns[:-1], columns[-1])
        elif type(source) is Appended:
            if target is source or not len(target.new):
                self._fill(target.new, source.new)
            elif has_rows(source.new) or has_rows(target.new):
                raise TraceError(BY_VALUE, user_loc())
            else:
                target.new += map(self.converted, source.new)
        elif type(source) is Assigned or (isinstance(source, Keyed) and source is target):
            self._fill(changing_part(target), changing_part(source))
        elif isinstance(source, list):
            items = list(map(self.converted, list.__iter__(source)))
            if isinstance(target, Listed):
                target.rows = None
            list.__setitem__(target, slice(None), items)
        elif type(source) in (set, deque):
            items = list(source) if type(source) is set else list(map(self.converted, source))
            target.clear()
            target.update(items) if type(source) is set else target.extend(items)
        elif is_stand_in(type(target)):
            for name in attribute_names(source):
                value = self.converted(getattr(source, name))
                if getattr(target, name, None) is not value:
                    target.assign(name, value)
        elif _has_attributes(target):
            values = {name: self.converted(getattr(source, name)) for name in attribute_names(source)}
            for name in attribute_names(target):
                object.__delattr__(target, name)
            for name, value in values.items():
                object.__setattr__(target, name, value)
        else:
            source, target = (vars(x) if type(x) in NAMESPACES else x for x in (source, target))
            pairs = [(k, self.converted(x)) for k, x in source.items()]
            target.clear()
            for key, item in pairs:
                target[key] = item


def _may_hold(value: Any) -> bool:
    """Return whether a value is a container."""
    return isinstance(value, (list, tuple, dict, deque, set, *NAMESPACES)) or dataclasses.is_dataclass(value)


def _has_attributes(x: Any) -> bool:
    """Return whether a value is an object whose attributes change: of a dataclass, or one that the traced function made."""
    return is_object_result(x) or (mutable_of(type(x)) is not None and dataclasses.is_dataclass(x))


def _parts(x: Any) -> tuple[TreeDef, list[Any]]:
    """Return the structure of a value down to its children, and these."""
    if type(x) in (Appended, Assigned) or isinstance(x, Keyed):
        return TreeDef("list", list), [changing_part(x)]
    if isinstance(x, list) and class_of(x) in (list, deque):
        return TreeDef("list", list), list(list.__iter__(x))
    if type(x) in (dict, OrderedDict, defaultdict, Counter):
        return TreeDef("dict", dict), list(x.values())
    if _has_attributes(x):
        names = attribute_names(x)
        return TreeDef("dataclass", type(x), names, tuple(names)), [getattr(x, name) for name in names]
    children: list[Any] = []

    def structure(child: Any) -> TreeDef:
        children.append(child)
        return LEAF

    return structure_of(x, [], structure, static_numbers=True), children
