"""Dicts and sets whose keys values decide: their items are elements of a list, which may be rows of arrays.

    counts[v] = counts.get(v, 0) + 1    ->    is_key = (keys[:n] == v); count = is_key ? values[is_key] : 0
                                              values[is_key ? its row : n] = count + 1; n += not is_key

A dict is the list of its pairs, in the order of insertion, and a set the list of its elements, of which no two are equal. A
lookup compares the key with all keys. A set that values decide has no order: CPython's depends on the elements.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from pullback.ir.core.types import I64
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.arrays.keyed_results import KeyedResult, container_of_elements
from pullback.tracer.arrays.make import as_traced, cast, emit, fresh, number_of_extent
from pullback.tracer.arrays.mixed_numbers import tag_value
from pullback.tracer.arrays.traced import Gathers, Keyed, Tagged, TracedArray
from pullback.tracer.arrays.tree import TreeDef, bare, flatten
from pullback.tracer.statements.choices import narrowed
from pullback.tracer.statements.growing import NEW, GrowingList, Rows
from pullback.tracer.statements.raising import check
from pullback.tracer.statements.structures import merged, spread
from pullback.tracer.syntax.table import OPERATORS, PREFIX, operator
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError

NAN = Limit("a key of a dict or set is not a number, of which Python compares the objects; replace it")
"""The error of a program for NaN among keys that values decide."""
_KINDS = "keys of several types in a dict or set, as values decide; make the keys alike"
_ORDER = "the order of a set whose elements values decide, which depends on their hashes; go over sorted(...) of it"
_MISSING: Any = object()


class GrowingKeys(Keyed):
    """A dict or set of the traced function, whose ``entries`` are its elements. ``removals``: how often elements may have been
    removed; ``is_ordered``: elements were added one by one, in whose order Python adds them."""

    entries: GrowingList
    word = "dictionary"
    """What Python's errors call it."""

    def __init__(self) -> None:
        self.entries, self.is_ordered, self.removals = GrowingList(), True, 0

    # lookups

    def key_of(self, element: Any) -> Any:
        """Return the key in an element of the list."""
        return element

    def find(self, key: Any) -> tuple[Any, Any]:
        """Return whether there is a key, a bool or a traced one, and the index of its element."""
        key = _hashable(key)
        elements = self.entries
        noted = current_root().keys_of.get(id(key))
        if noted is not None and noted[1] is self and noted[3] == self.removals and elements.rows is not None:
            return True, noted[2]
        if elements.rows is None:
            keys = [self.key_of(e) for e in list.__iter__(elements)]
            if not keys:
                return False, 0
            if not any(map(_is_undecided, (key, *keys))):
                index = next((j for j, k in enumerate(keys) if k is key or (hash(k) == hash(key) and k == key)), None)
                return index is not None, index or 0
            _refuse_several_kinds(keys)
            elements.stack([], len(keys))
        is_equal = self.matches(key)
        if is_equal is None:
            return False, 0
        index = emit("iota", shape=is_equal.shape, axis=0, dtype=I64)
        is_key = as_traced(np.any(is_equal))
        is_key.weak = "bool"
        position = as_traced(np.sum(np.where(is_equal, index, 0)))  # one row at most is equal
        return is_key, _index(position, elements.stored().capacity)

    def matches(self, key: Any) -> TracedArray | None:
        """Return for each row of the arrays whether it is an element with a key; None if no key can be equal to it."""
        rows = self.entries.stored()
        leaves, tree = flatten(key)
        own, arrays = self.key_tree(rows), list[Any](leaves)
        if bare(tree) != own:
            if merged(own, bare(tree)) != own:
                if isinstance(key, Tagged):
                    raise TraceError("a key that is one of several, as values decide, of which only some may be in a dict or set")
                return None
            arrays = list(spread(bare(tree), list(map(as_traced, leaves)), own))
        result = as_traced(emit("iota", shape=rows.buffers[0].shape[:1], axis=0, dtype=I64) < self.entries.length())
        for (buffer, *_), leaf in zip(rows.leaves[: own.count], arrays, strict=True):
            if leaf is not None:
                result = as_traced(np.logical_and(result, _equals(buffer, as_traced(leaf))))
        return result

    def key_tree(self, rows: Rows) -> TreeDef:
        """Return the structure of a key of rows."""
        return rows.tree

    def contains(self, key: Any) -> Any:
        """Return whether there is a key, a bool or a traced one."""
        return self.find(key)[0]

    def element(self, position: Any) -> Any:
        """Return the element of an index that exists."""
        elements = self.entries
        return elements.row(position) if elements.rows is not None else list.__getitem__(elements, position)

    def length(self) -> Any:
        return self.entries.length()

    # changes, and what it stands for

    def remove_at(self, is_key: Any, position: Any) -> None:
        """Remove an element if there is one."""
        self.note_removal()
        if is_key is True:
            del self.entries[position]
        elif is_key is not False:
            self.entries.delete_if(is_key, position)

    def note_removal(self) -> None:
        """Note that elements are removed."""
        self.is_ordered, self.removals = False, self.removals + 1

    def clear(self) -> None:
        self.note_removal()
        self.entries.clear()

    def copy(self) -> Any:
        result = type(self)()
        result.entries, result.is_ordered = self.entries.copy(), False
        return result

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sequence())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self.sequence())

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return bool(self.length() != 0)

    def __contains__(self, key: Any) -> bool:
        return bool(self.find(key)[0])

    def __copy__(self) -> Any:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return container_of_elements, (self.kind, self.entries.entries())

    def __repr__(self) -> str:
        return repr(self.contents())

    def contents(self) -> Any:
        """Return what it stands for. Raises TraceError if values decide the number of items or the keys."""
        elements = self.entries.entries()
        if any(_is_undecided(self.key_of(e)) for e in elements):
            raise TraceError(f"a {self.stands_for.__name__} with keys that values decide is used as one of fixed keys")
        return container_of_elements(self.kind, elements)

    @property
    def kind(self) -> tuple[Any, ...]:
        """The class that it stands for, and the function of a default value."""
        return self.stands_for, None

    def result(self) -> Any:
        elements = self.entries
        return KeyedResult(elements.result() if elements.rows is not None else list(list.__iter__(elements)), self.kind)


class GrowingDict(GrowingKeys):
    """A dict of the traced function, of pairs. ``factory`` returns the value of a key that is missing."""

    stands_for: type = dict

    def __init__(self, factory: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.factory = factory

    def key_of(self, element: Any) -> Any:
        return element[0]

    def key_tree(self, rows: Rows) -> TreeDef:
        return rows.tree.children[0]

    # values

    def value_at(self, is_key: Any, position: Any, default: Callable[[], Any]) -> Any:
        """Return the value of a key if there is one, else a default."""
        value = lambda: self.element(position)[1]  # noqa: E731
        if isinstance(is_key, bool):
            return value() if is_key else default()
        return OPERATORS[PREFIX + "choose"](is_key, value, default)

    def __getitem__(self, key: Any) -> Any:
        is_key, position = self.find(key)
        if is_key is True:
            return self.element(position)[1]
        if self.factory is not None:
            return self.of_missing(key, is_key, position)
        _check_key(is_key, key)
        return self.element(position)[1]

    def of_missing(self, key: Any, is_key: Any, position: Any) -> Any:
        """Return the value of a key, which gets the default value if there is none."""
        assert self.factory is not None
        value = self.value_at(is_key, position, self.factory)
        self.put(key, value, is_key, position)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value, *self.find(key))

    def put(self, key: Any, value: Any, is_key: Any, position: Any) -> None:
        """Set the value of a key, of which ``find`` returned whether there is one, and the index."""
        elements = self.entries
        if is_key is False:
            elements.append((_hashable(key), value))
            return
        if is_key is True:
            elements[position] = (self.element(position)[0], value)
            return
        count = elements.length()
        elements.append_unless(is_key, (_hashable(key), value))
        rows = elements.rows
        assert rows is not None
        row = _index(np.where(is_key, position, count), rows.capacity)
        first = self.key_tree(rows).count
        leaves = flatten(value)[0]
        if not rows.counts:
            for (buffer, _, tags), x in zip(rows.leaves[first:], map(as_traced, leaves), strict=True):
                buffer[row] = cast(x, buffer.dtype)
                if tags is not None:
                    tags[row] = tag_value(x, tags.dtype)

    def include(self, element: Any) -> None:
        self[element[0]] = element[1]

    def get(self, key: Any, default: Any = None, /) -> Any:
        return self.value_at(*self.find(key), lambda: default)

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        is_key, position = self.find(key)
        value = self.value_at(is_key, position, lambda: default)
        self.put(key, value, is_key, position)
        return value

    def pop(self, key: Any, default: Any = _MISSING, /) -> Any:
        is_key, position = self.find(key)
        if default is _MISSING:
            _check_key(is_key, key)
            value = self.element(position)[1]
        else:
            value = self.value_at(is_key, position, lambda: default)
        self.remove_at(is_key, position)
        return value

    def __delitem__(self, key: Any) -> None:
        is_key, position = self.find(key)
        _check_key(is_key, key)
        self.remove_at(is_key, position)

    def popitem(self) -> Any:
        self.note_removal()
        if self.entries.rows is None and not list.__len__(self.entries):
            raise _error(KeyError("popitem(): dictionary is empty"))
        if self.entries.rows is not None:
            holds = as_traced(self.length() > 0)
            emit("check", holds, error="KeyError", message="popitem(): dictionary is empty")
        return self.entries.pop()

    def update(self, other: Any = (), /, **keywords: Any) -> None:
        pairs = other.items() if hasattr(other, "keys") else other
        _each(pairs, lambda pair: self.__setitem__(*pair))
        for key, value in keywords.items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        result = self.copy()
        result.update(other)
        return result

    # the items in their order

    def sequence(self) -> GrowingList:
        return self.keys()

    def keys(self) -> View:
        return self.part(0)

    def values(self) -> View:
        return self.part(1)

    def items(self) -> View:
        elements = self.entries
        result = View(list.__iter__(elements))
        result.part = None
        if elements.rows is not None:
            result.rows = elements.copy().rows
        result.source, result.owner, result.key_of = elements, self, self.key_of
        return result

    def part(self, k: int) -> View:
        """Return the keys or the values."""
        elements = self.entries
        rows = elements.rows
        result = View(element[k] for element in list.__iter__(elements))
        result.part = k
        result.source, result.owner, result.key_of = elements, self, (lambda key: key) if k == 0 else None
        if rows is not None:
            first = self.key_tree(rows).count
            at = slice(None, first) if k == 0 else slice(first, None)
            leaves = elements.stored().leaves[at]
            buffers = [fresh(b) for b, *_ in leaves] + [fresh(t) for *_, t in leaves if t is not None]
            result.rows = Rows(rows.tree.children[k], buffers, [name for _, name, _ in leaves], rows.length, rows.capacity)
            result.rows.least, result.rows.most = rows.least, rows.most
        return result

    def __eq__(self, other: Any) -> Any:
        if self is other:
            return True
        return self.contents() == (other.contents() if isinstance(other, Keyed) else other)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Any:
        result = super().copy()
        result.factory = self.factory
        return result

    def extreme_keys(self, key: Any) -> GrowingList | None:
        """Return the values if a function is the own ``get`` or ``__getitem__``, by which the keys are ordered; else None."""
        is_own = getattr(key, "__self__", None) is self and getattr(key, "__name__", "") in ("get", "__getitem__")
        return self.values() if is_own else None


class GrowingDefaultDict(GrowingDict):
    """A ``defaultdict`` of the traced function."""

    stands_for = defaultdict

    @property
    def kind(self) -> tuple[Any, ...]:
        if self.factory is not None and not isinstance(self.factory, type):
            raise TraceError("a defaultdict whose default is a function of yours is used as a whole; write dict(...) of it")
        return self.stands_for, self.factory


class GrowingOrderedDict(GrowingDict):
    """An ``OrderedDict`` of the traced function."""

    stands_for = OrderedDict

    def popitem(self, last: Any = True) -> Any:
        return super().popitem() if last is True else _refused("popitem of the first item")

    def move_to_end(self, *_: Any) -> Any:
        return _refused("move_to_end")

    def __eq__(self, other: Any) -> Any:
        return self is other or _refused("a comparison of ordered dicts")

    __hash__ = None


class GrowingCounter(GrowingDict):
    """A ``Counter`` of the traced function."""

    stands_for = Counter

    def __delitem__(self, key: Any) -> None:
        self.remove_at(*self.find(key))

    def __getitem__(self, key: Any) -> Any:
        return self.value_at(*self.find(key), lambda: 0)

    def update(self, other: Any = (), /, **keywords: Any) -> None:
        if keywords or hasattr(other, "keys"):
            _refused("update of a Counter by another mapping")
        _each(other, self.count)

    def count(self, key: Any) -> None:
        """Add 1 to the count of a key."""
        self[key] = self[key] + 1

    def total(self) -> Any:
        return OPERATORS[PREFIX + "sum"](self.values())

    def most_common(self, n: Any = None) -> Any:
        ordered = self.items().as_list()
        ordered.sort(key=lambda pair: pair[1], reverse=True)
        return ordered if n is None else ordered[:n]

    def elements(self) -> Any:
        return _refused("Counter.elements")

    def __add__(self, other: Any) -> Any:
        return _refused("arithmetic of Counters")

    subtract = __sub__ = __or__ = __and__ = __ior__ = __add__


class GrowingSet(GrowingKeys):
    """A set of the traced function."""

    stands_for: type = set
    word = "Set"

    def add(self, key: Any, /) -> None:
        is_key, _ = self.find(key)
        if is_key is False:
            self.entries.append(_hashable(key))
        elif is_key is not True:
            self.entries.append_unless(is_key, _hashable(key))

    def include(self, element: Any) -> None:
        self.add(element)

    def discard(self, key: Any, /) -> None:
        self.remove_at(*self.find(key))

    def remove(self, key: Any, /) -> None:
        is_key, position = self.find(key)
        _check_key(is_key, key)
        self.remove_at(is_key, position)

    def fill(self, elements: Any) -> None:
        """Add all of some elements."""
        self.is_ordered &= not isinstance(elements, set | frozenset | dict | Keyed)
        elements = elements.elements() if isinstance(elements, Gathers) else elements
        is_array = isinstance(elements, TracedArray) and elements.ndim == 1 and not decides(elements)
        if isinstance(elements, TracedArray) and elements.ndim > 1:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        is_set = type(elements) is GrowingSet
        sequence = elements.entries if is_set else elements
        is_own = isinstance(sequence, GrowingList) and sequence.rows is not None
        is_empty = self.entries.rows is None and not list.__len__(self.entries)
        if is_empty and is_set and not is_own:
            self.entries.extend(list.__iter__(sequence))
        elif is_empty and (is_array or is_own) and self.entries.home is frame_of() and not _is_counting(sequence):
            self.entries.rows = sequence.copy().rows if is_set else _distinct(_rows_of(sequence))
        else:
            _each(elements.elements_of() if isinstance(elements, GrowingSet) else elements, self.add)

    def __iter__(self) -> Iterator[Any]:
        elements = iter(self.sequence())
        return KnownElementsIterator(KnownElements(self, elements)) if self.entries.rows is None else elements

    def elements_of(self) -> GrowingList:
        """Return the elements for a use that does not depend on their order."""
        return self.entries.copy()

    def sequence(self) -> GrowingList:
        """Return the elements in their order. Raises TraceError if values decide it."""
        elements = self.entries
        is_known = elements.rows is None and not any(map(_is_undecided, list.__iter__(elements)))
        if list.__len__(elements) < 2 and elements.rows is None:
            return elements.copy()
        if not is_known or not self.is_ordered:
            error = TraceError(_ORDER)
            error.wants_keys = True
            raise error
        return GrowingList(set(list.__iter__(elements)))

    # the algebra of sets

    def update(self, *others: Any) -> None:
        for other in others:
            self.fill(other)

    def union(self, *others: Any) -> Any:
        result = self.copy()
        result.update(*others)
        return result

    def intersection(self, *others: Any) -> Any:
        return self.filtered(lambda x, tests: _all(t.contains(x) for t in tests), others)

    def difference(self, *others: Any) -> Any:
        return self.filtered(lambda x, tests: _not(_any(t.contains(x) for t in tests)), others)

    def symmetric_difference(self, other: Any) -> Any:
        return self.difference(other).union(_set_of(other).difference(self))

    def filtered(self, is_kept: Callable[[Any, Sequence[Any]], Any], others: Sequence[Any]) -> Any:
        """Return the set of the elements that are kept by a test, which is passed others as sets."""
        result, tests = GrowingSet(), list(map(_set_of, others))
        result.is_ordered = False
        if_, kept = OPERATORS[PREFIX + "if"], result.entries
        _each(self.elements_of(), lambda x: if_(is_kept(x, tests), lambda: kept.append(x), None, ()))
        return result

    def issubset(self, other: Any) -> Any:
        others, total = _set_of(other), self.length()
        return OPERATORS[PREFIX + "compare"](self.intersection(others).length(), ("Eq",), lambda: total)

    def issuperset(self, other: Any) -> Any:
        return _set_of(other).issubset(self)

    def isdisjoint(self, other: Any) -> Any:
        return OPERATORS[PREFIX + "compare"](self.intersection(other).length(), ("Eq",), lambda: 0)

    def equals(self, other: Any) -> Any:
        """Return whether another set has the same elements, a bool or a traced one."""
        others = _set_of(other)
        is_subset, lengths = self.issubset(others), (self.length(), others.length())
        return _all([is_subset, OPERATORS[PREFIX + "compare"](lengths[0], ("Eq",), lambda: lengths[1])])

    def __eq__(self, other: Any) -> Any:
        return self.equals(other) if _is_set(other) else False

    def __ne__(self, other: Any) -> Any:
        return _not(self == other)

    def __le__(self, other: Any) -> Any:
        return self.issubset(other) if _is_set(other) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return self.issuperset(other) if _is_set(other) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return _all([self <= other, _not(self == other)]) if _is_set(other) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return _all([self >= other, _not(self == other)]) if _is_set(other) else NotImplemented

    def __or__(self, other: Any) -> Any:
        return self.union(other) if _is_set(other) else NotImplemented

    __ror__ = __or__

    def __and__(self, other: Any) -> Any:
        return self.intersection(other) if _is_set(other) else NotImplemented

    __rand__ = __and__

    def __sub__(self, other: Any) -> Any:
        return self.difference(other) if _is_set(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return _set_of(other).difference(self) if _is_set(other) else NotImplemented

    def __xor__(self, other: Any) -> Any:
        return self.symmetric_difference(other) if _is_set(other) else NotImplemented

    __rxor__ = __xor__

    def __ior__(self, other: Any) -> Any:
        if not _is_set(other):
            return NotImplemented
        self.update(other)
        return self

    def difference_update(self, other: Any) -> None:
        _each(_set_of(other).elements_of(), self.discard)

    def __isub__(self, other: Any) -> Any:
        if not _is_set(other):
            return NotImplemented
        self.difference_update(other)
        return self

    __hash__ = None  # type: ignore[assignment]

    def pop(self) -> Any:
        return _refused("pop of a set, whose order depends on hashes; use min or max, and remove")

    def __iand__(self, other: Any) -> Any:
        return _refused("this change of a set")

    __ixor__ = intersection_update = symmetric_difference_update = __iand__


class KnownElements:
    """The known number of elements of a dict or set that a loop goes over. ``part``: 0 for keys, which are those of the ``owner``
    unless they are given, 1 for values, None for pairs; values are those of the time at which they are read."""

    def __init__(self, owner: GrowingKeys, keys: Iterator[Any] | None = None, part: int | None = 0) -> None:
        self.owner, self.part = owner, part
        self.keys = [key for key, _ in list.__iter__(owner.entries)] if keys is None else list(keys)

    def at(self, k: int) -> Any:
        """Return element ``k``. Raises StopIteration if there is none, and RuntimeError, as Python's iterators do, if there is
        another number of keys by now, at run time if values decide it."""
        entries, error = self.owner.entries, RuntimeError(f"{self.owner.word} changed size during iteration")
        if entries.rows is not None:
            check(entries.length() == len(self.keys), error)
        elif list.__len__(entries) != len(self.keys):
            raise error
        if k == len(self.keys):
            raise StopIteration
        if self.part == 0:
            return self.keys[k]
        value = self.owner.element(k)[1]
        return value if self.part == 1 else (self.keys[k], value)


class KnownElementsIterator(Iterator[Any]):
    """An iterator over elements of a known number."""

    def __init__(self, elements: KnownElements) -> None:
        self.elements, self.next = elements, 0

    def __next__(self) -> Any:
        element = self.elements.at(self.next)
        self.next += 1
        return element

    def remaining(self) -> list[Callable[[], Any]]:
        """Return functions that return the elements that are left, the last of which raises StopIteration."""
        return [partial(self.elements.at, k) for k in range(self.next, len(self.elements.keys) + 1)]


class View(GrowingList):
    """The keys, values or items of a dict, the ``owner``: a copy of what they are. ``source``: the list of the dict's pairs;
    ``key_of`` returns the key in an element, None if there is none; ``part``: 0 for keys, 1 for values, None for both."""

    __slots__ = ("key_of", "owner", "part", "source")
    source: GrowingList
    owner: GrowingDict
    part: int | None
    key_of: Callable[[Any], Any] | None

    def row(self, k: Any) -> Any:
        element = super().row(k)
        if self.key_of is not None:
            key = self.key_of(element)
            current_root().keys_of[id(key)] = key, self.owner, k, self.owner.removals
        return element

    def _unchanging(self) -> Iterator[Any]:
        if self.source.rows is None:
            return KnownElementsIterator(KnownElements(self.owner, part=self.part))
        return iter(self.owner.items() if self.part is None else self.owner.part(self.part))

    def __getitem__(self, k: Any) -> Any:
        raise TypeError("a view of a dict is not subscriptable")

    def __eq__(self, other: Any) -> Any:
        return True if self is other else _refused("a comparison of a view of a dict")

    __hash__ = None

    def __and__(self, other: Any) -> Any:
        return self.as_set() & _set_of(other)

    def __or__(self, other: Any) -> Any:
        return self.as_set() | _set_of(other)

    def __sub__(self, other: Any) -> Any:
        return self.as_set() - _set_of(other)

    def __xor__(self, other: Any) -> Any:
        return self.as_set() ^ _set_of(other)

    def __rand__(self, other: Any) -> Any:
        return _set_of(other) & self.as_set()

    def __ror__(self, other: Any) -> Any:
        return _set_of(other) | self.as_set()

    def __rsub__(self, other: Any) -> Any:
        return _set_of(other) - self.as_set()

    __rxor__ = __xor__

    def as_set(self) -> GrowingSet:
        """Return the keys or items as a set."""
        if self.key_of is None:
            raise TypeError("the values of a dict are no set")
        return _set_of(self)

    def append(self, *_: Any, **__: Any) -> Any:
        return _refused("this use of a view of a dict")

    __setitem__ = extend = insert = pop = sort = reverse = remove = index = count = __add__ = append


def current_root() -> Frame:
    """Return the root of the current frame."""
    return frame_of().root


def _hashable(key: Any) -> Any:
    """Return a key. Raises TypeError for one that has no hash."""
    key = narrowed(key)
    for leaf in flatten(key)[0] if type(key) is tuple else [key]:
        if isinstance(leaf, TracedArray) and (leaf.shape or leaf.is_cell):
            raise TypeError("unhashable type: 'numpy.ndarray'")
        if not isinstance(leaf, TracedArray):
            hash(leaf)
    return key


def _is_undecided(key: Any) -> bool:
    """Return whether values decide a key."""
    leaves = flatten(key)[0] if type(key) is tuple else [key]
    return any(isinstance(x, TracedArray) and not decides(x) for x in leaves)


def _equals(buffer: TracedArray, x: TracedArray) -> Any:
    """Return which keys are equal to a number. Raises TraceError for types whose numbers are not compared exactly."""
    if _is_whole(buffer) and _is_whole(x):
        return cast(buffer, np.int64) == cast(x, np.int64)
    if buffer.dtype != x.dtype or buffer.dtype.kind == "c":
        raise TraceError(_KINDS)
    if x.dtype.kind == "f":
        emit("check", as_traced(np.logical_not(np.isnan(x))), error="ValueError", message=NAN)
    return buffer == x


def _is_whole(x: TracedArray) -> bool:
    """Return whether 64 bits hold all numbers of the type of an array."""
    return x.dtype.kind in "bi" or (x.dtype.kind == "u" and x.dtype.itemsize < 8)


def _refuse_several_kinds(keys: Sequence[Any]) -> None:
    """Raise TraceError for keys of several kinds, such as bools, ints and floats, of which an array has one."""
    rows = [[as_traced(x).dtype.kind for x in flatten(key)[0]] for key in keys]
    if any(row != rows[0] for row in rows):
        raise TraceError(_KINDS)


def _index(position: Any, capacity: Any) -> TracedArray:
    """Return an index of a row, with its bounds."""
    index = as_traced(position)
    index = TracedArray(index.type, index.frame, index.value, weak="int", loc=index.loc)
    index.bounds = (0, max(capacity - 1, 0) if type(capacity) is int else 2**48)
    return index


def _check_key(is_key: Any, key: Any) -> None:
    """Raise KeyError unless there is a key, at run time if values decide it."""
    if is_key is False:
        raise _error(KeyError(key))
    if is_key is not True:
        check(is_key, KeyError(key))


def _error(error: Any) -> Any:
    """Return an error of an operation, which compiled code raises in a block as one of a ``raise`` statement."""
    error.is_by_statement = True
    return error


def _refused(what: str) -> NoReturn:
    raise TraceError(f"{what} is not supported, as values decide; write a loop")


def _each(elements: Any, body: Callable[[Any], Any]) -> None:
    """Call a function with each of some elements, in a loop of the program if it is long."""

    def run(element: Any) -> None:
        body(element)

    if type(elements) is tuple:
        for element in elements:
            body(element)
        return
    OPERATORS[PREFIX + "for"](elements, run, None, (), ())


def _is_set(x: Any) -> bool:
    return isinstance(x, set | frozenset | GrowingSet)


def _set_of(x: Any) -> GrowingSet:
    """Return a set of the elements of an iterable."""
    if type(x) is GrowingSet:
        return x
    result = GrowingSet()
    result.fill(x)
    result.is_ordered = False
    return result


def _any(tests: Iterable[Any]) -> Any:
    first, *others = tests
    return OPERATORS[PREFIX + "or"](first, *(lambda t=t: t for t in others))


def _all(tests: Iterable[Any]) -> Any:
    first, *others = tests
    return OPERATORS[PREFIX + "and"](first, *(lambda t=t: t for t in others))


def _not(test: Any) -> Any:
    return OPERATORS[PREFIX + "not"](test)


def _is_counting(x: Any) -> bool:
    return isinstance(x, GrowingList) and x.rows is not None and x.rows.counts


def _rows_of(elements: Any) -> Rows:
    """Return the elements of a vector, or of a list with rows, as rows."""
    if isinstance(elements, GrowingList):
        return elements.stored()
    count = elements.shape[0]
    length = count if type(count) is int else number_of_extent(count)
    rows = Rows(flatten(elements)[1], [fresh(elements)], [""], length, count)
    rows.least = count if type(count) is int else 0
    rows.most = count
    return rows


def _distinct(rows: Rows) -> Rows | None:
    """Return the first ones of equal rows, in their order; None if there are no rows."""
    if type(rows.capacity) is int and rows.capacity == 0:
        return None
    columns = [buffer for buffer, *_ in rows.leaves]
    if any(c.ndim > 1 for c in columns):
        raise TypeError("unhashable type: 'numpy.ndarray'")
    index = emit("iota", shape=columns[0].shape, axis=0, dtype=I64)
    is_row = as_traced(index < (rows.length if type(rows.length) is int else _index(rows.length, rows.capacity)))
    for c in columns:
        if c.dtype.kind == "c":
            raise TraceError(_KINDS)
        if c.dtype.kind == "f":
            is_number = np.logical_or(np.logical_not(np.isnan(c)), np.logical_not(is_row))
            emit("check", as_traced(np.all(is_number)), error="ValueError", message=NAN)
    order = xp.lexsort((*columns[::-1], np.logical_not(is_row)))
    is_first = as_traced(index == 0)
    for c in columns:
        ordered = c[order]
        is_first = as_traced(np.logical_or(is_first, ordered != emit("shift", as_traced(ordered), axis=0, offset=1)))
    position = xp.argsort(order)
    is_first = as_traced(np.logical_and(is_first[position], is_row))
    kept = xp.argsort(np.logical_not(is_first), kind="stable")
    length = as_traced(np.sum(is_first))
    length.weak = "int"
    result = Rows(rows.tree, [fresh(as_traced(b[kept])) for b in rows.buffers], rows.weak, length, rows.capacity)
    result.least, result.most = 0, rows.most
    return result


# the operators


def _new_set(elements: Any = ()) -> GrowingSet:
    result = GrowingSet()
    result.fill(elements)
    return result


def _new_dict(pairs: Any = (), make: type[GrowingDict] = GrowingDict) -> GrowingDict:
    result = make()
    result.update(pairs)
    return result


def _new_ordered_dict(pairs: Any = ()) -> GrowingDict:
    return _new_dict(pairs, GrowingOrderedDict)


def _new_counter(elements: Any = ()) -> GrowingCounter:
    result = GrowingCounter()
    result.update(elements)
    return result


def _new_defaultdict(factory: Any = None, /) -> GrowingDict | None:
    if factory in (list, dict, set, deque):
        return None
    return GrowingDefaultDict(factory)


def takes_keys() -> bool:
    """Return whether dicts and sets that rewritten functions make may have keys that values decide, and note that one is made."""
    frame = current()
    if frame is None or not frame.root.rolls:
        return False
    frame.root.has_keys = True
    return frame.root.is_keyed


_MAKE: dict[Any, Callable[..., GrowingKeys | None]] = {
    set: _new_set, dict: _new_dict, Counter: _new_counter, defaultdict: _new_defaultdict, OrderedDict: _new_ordered_dict,
}  # fmt: skip
"""By classes of Python: functions that return a dict or set of the traced function; None where Python's own serves."""


def _new(kind: Any, *arguments: Any) -> Any:
    """Return a dict or set of the traced function if values may decide keys, else Python's."""
    result = _MAKE[kind](*arguments) if takes_keys() else None
    return kind(*arguments) if result is None else result


NEW.update(dict.fromkeys(_MAKE, _new))


@operator("looked up")
def looked_up(table: dict[Any, Any], key: Any) -> Any:
    """Return ``table[key]`` of a dict of Python's and a key that values decide."""
    try:
        return _new_dict(tuple(table.items()))[key]
    except TraceError:
        return table[key]  # refuses the key


@operator("set")
def set_of(plain: Callable[[], Any], elements: Callable[[], Any]) -> Any:
    """Return the set of a display."""
    if not takes_keys():
        return plain()
    result = _new_set(elements())
    result.is_ordered = list.__len__(result.entries) < 3  # Python adds more constants in another order
    return result


@operator("dict")
def dict_of(plain: Callable[[], Any], pairs: Callable[[], Any]) -> Any:
    """Return the dict of a display."""
    return _new_dict(pairs()) if takes_keys() else plain()


@operator("set comprehension")
def set_comprehension(plain: Callable[[], Any], fill: Callable[[Any], None]) -> Any:
    """Return the set of a comprehension, whose elements ``fill`` appends to a target."""
    if not takes_keys():
        return plain()
    result = GrowingSet()
    fill(result)
    return result


@operator("dict comprehension")
def dict_comprehension(plain: Callable[[], Any], fill: Callable[[Any], None]) -> Any:
    """Return the dict of a comprehension, whose pairs ``fill`` appends to a target."""
    if not takes_keys():
        return plain()
    result = GrowingDict()
    fill(result)
    return result
