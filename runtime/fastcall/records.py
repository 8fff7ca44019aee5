"""Build the tables of the fast call for one compiled signature, and the hash table that finds them.

``Description`` says in Python's terms what a call must be, the sources of the program's arguments and the use of its results;
a ``Record`` holds that as words (``record_layout``), with all that they point to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.entry import Entry as Entrance
from pullback.runtime.fastcall.record_layout import (
    CONTAINERS,
    CREATION,
    RECORD,
    SLOT,
    TABLE,
    Build,
    Demand,
    Fill,
    Guard,
    Node,
    Reading,
    Result,
)
from pullback.runtime.fastcall.run import SHORT_RUNS
from pullback.runtime.memory import result_arrays
from pullback.runtime.program.arena import ALIGNMENT, SMALL_ARENA
from pullback.runtime.program.created_results import store_failure
from pullback.runtime.program.executable import Executable, Instance
from pullback.runtime.program.launcher import address_of

BOX_BYTES = 16
"""The bytes of a frame that a scalar takes."""
LARGEST_STACK = 1 << 13
"""The largest number of registers of a record; they are on the stack of the calling thread."""


NO_ITEM = object()
"""What an item of a dict is expected to be that the dict must not have."""


class NotNative(Exception):
    """Raised, with the reason, if the calls of a signature must go through Python."""


@dataclass(frozen=True, kw_only=True)
class NodeOf:
    """A row of the table of nodes. ``type`` and ``a`` are kept alive with it. ``keys``: the keys of a dict, or the names of
    attributes."""

    kind: Node
    type: Any = None
    a: Any = None
    shape: tuple[int, ...] = ()
    constant: int = 0
    first: int = 0
    count: int = 0
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source of an argument of the program: a register, or a constant ``value``.

    ``kind``: "array", "element" (of an array of rank 0), "number" (NumPy's, a float or complex), "int", "bool" or "constant".
    """

    kind: str
    register: int = 0
    dtype: Any = None
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class Description:
    """The contents of a record. ``guards``: (how, owner, name, expected, whether by value). ``build``: (kind, a, keys or
    None). ``leaves``: the registers of the call's leaves. ``caller_arrays``: the results that are arrays of the caller,
    with their registers. ``demands``: (kind, register, operand). ``puts``: pairs of registers, the results' after all
    others. ``numbers``: the types of the results that are Python numbers."""

    positional: int
    keywords: tuple[str, ...]
    nodes: Sequence[NodeOf]
    has_inside: int
    guards: Sequence[tuple[Guard, Any, Any, Any, bool]]
    reads: Sequence[tuple[Reading, Any, Any, Any]]
    watch: Callable[..., Any] | None
    watched: int
    outside: int
    sources: Sequence[Source]
    leaves: Sequence[int]
    build: Sequence[tuple[Build, Any, Any]]
    finish: Callable[[list[Any], list[Any]], Any] | None
    failed: Callable[[int, list[Any]], Any]
    caller_arrays: Mapping[int, int] = field(default_factory=dict)
    demands: Sequence[tuple[Demand, int, Any]] = ()
    puts: Sequence[tuple[int, int]] = ()
    numbers: Mapping[int, type] = field(default_factory=dict)


class Record:
    """The tables of the compiled signature of ``entry``. They live as long as this object, which every call in progress holds.
    Without ``native`` they cannot be called, only inspected. The constructor raises NotNative."""

    __slots__ = (
        "_kept",
        "address",
        "description",
        "entry",
        "executable",
        "hash",
        "instance",
        "rows",
        "was_searched",
        "words",
    )  # fmt: skip

    def __init__(
        self, entry: Any, description: Description, executable: Executable | None, instance: Instance | None, hash: int,
        native: Entrance | None,
    ) -> None:  # fmt: skip
        self.entry = entry
        self.hash = hash
        self.description, self.executable, self.instance = description, executable, instance
        self._kept: list[Any] = []
        self.rows: dict[str, list[list[int]]] = {}
        self.was_searched = False
        self.words: dict[str, int] = dict.fromkeys(RECORD, 0)
        if native is not None:
            self.words |= {"attempt": native.attempt, "state": native.state}
        self._checks(description)
        self._outside(description)
        self._run(description, executable, instance, native)
        self._results(description, instance)
        if self.words["registers"] > LARGEST_STACK:
            raise NotNative(f"{self.words['registers']:,} objects go in and out")
        self.words["owner"] = id(self)
        self.address = self._table([list(self.words.values())])

    def is_like(self, other: Record) -> bool:
        """Return whether it serves the same calls as another one."""
        if self.entry is not other.entry or self.hash != other.hash:
            return False
        a, b = self.description, other.description
        try:
            names = ("keywords", "nodes", "guards", "reads", "demands", "puts")
            same = all(getattr(a, name) == getattr(b, name) for name in names)
        except Exception:
            return False
        return bool(same)

    @property
    def is_busy(self) -> bool:
        """Whether a call is using the record's own frame."""
        return abi.word_at(self.address + 8 * RECORD.index("busy")) != 0

    @property
    def mode(self) -> int:
        return self["mode"]

    def __getitem__(self, name: str) -> int:
        """Return the current value of a word of the record."""
        return abi.word_at(self.address + 8 * RECORD.index(name))

    def __setitem__(self, name: str, value: int) -> None:
        abi.set_word(self.address + 8 * RECORD.index(name), value)

    def keep(self, x: Any) -> None:
        """Keep an object alive as long as the record."""
        self._kept.append(x)

    def _named(self, name: str, rows: list[list[int]]) -> int:
        """As ``_table``, and remember the rows by name."""
        self.rows[name] = rows
        return self._table(rows)

    def _table(self, rows: Sequence[Sequence[int]]) -> int:
        """Return the address of words that live as long as the record."""
        words = np.array(rows, np.int64).reshape(-1) if rows else np.zeros(1, np.int64)
        self._kept.append(words)
        return address_of(words)

    def _id(self, x: Any) -> int:
        """Return the address of an object that lives as long as the record; 0 for None."""
        if x is None:
            return 0
        self._kept.append(x)
        return id(x)

    def _checks(self, d: Description) -> None:
        rows = []
        for node in d.nodes:
            a, b = self._id(node.a), node.constant
            c = self._table([node.shape]) if node.kind is Node.ARRAY else 0
            if node.kind in (Node.DICT, Node.FIELDS):
                a = self._table([[self._id(k) for k in node.keys]])
            elif node.kind is Node.NUMBER:
                a = node.constant
            elif node.kind is Node.SAME and node.a is None:
                a = id(None)
            elif node.kind is Node.ARRAY:
                b = len(node.shape)
            rows.append([node.kind, self._id(node.type), a, b, c, node.first, node.count, 0])
        names = self._table([[self._id(k) for k in d.keywords]])
        self.words |= {"positional": d.positional, "keywords": len(d.keywords), "names": names}
        self.words |= {"nodes": self._named("nodes", rows), "node_count": len(rows), "has_inside": d.has_inside}
        self.words |= {"leaves": self._table([list(d.leaves)] if d.leaves else []), "leaf_count": len(d.leaves)}

    def _outside(self, description: Description) -> None:
        tagged = Guard.TAGGED if abi.dicts_are_tagged() else Guard.ITEM
        guards = []
        for kind, a, b, expected, by_value in description.guards:
            last = 0 if expected is NO_ITEM else id(None) if expected is None else self._id(expected)
            guards.append([tagged if kind is Guard.ITEM else kind, self._id(a), self._id(b), last, 0, by_value])
        reads = [
            [kind, a if kind >= Reading.OF else self._id(a), *self._name_or_index(kind, b, owner_class)]
            for kind, a, b, owner_class in description.reads
        ]
        self.words |= {"guards": self._named("guards", guards), "guard_count": len(guards), "watch": self._id(description.watch)}
        self.words["watched"] = description.watched
        self.words |= {"reads": self._named("reads", reads), "read_count": description.outside}

    def _name_or_index(self, kind: Reading, b: Any, owner_class: Any) -> tuple[int, int, int]:
        """Return the words of a read after the first two."""
        if kind is Reading.ITEM_OF:
            return 0, self._id(owner_class), b
        return self._id(b), self._id(owner_class), 0

    def _run(
        self, description: Description, executable: Executable | None, instance: Instance | None, native: Entrance | None
    ) -> None:
        self.words["finish"], self.words["failed"] = self._id(description.finish), self._id(description.failed)
        if executable is None or instance is None:
            return
        layout = _FrameLayout(executable, instance, description.sources, len(description.nodes), description.caller_arrays)
        frame = np.zeros(layout.bytes + ALIGNMENT, np.uint8)
        self._kept.append(frame)
        start = -address_of(frame) % ALIGNMENT
        frame = frame[start : start + layout.bytes]
        layout.write(frame, 0 if native is None else native.create)
        functions, starts = instance.tables[:2]
        self._kept.append(instance.tables)
        own, others = layout.fills(address_of(frame), frame)
        clock = native is not None and native.has_clock
        waits = bool(instance.hosts) or bool(instance.looks) or executable.polls or not clock
        self.words |= {"mode": -1 if waits else SHORT_RUNS, "took": 1 << 62, "frame": address_of(frame)}
        self.words |= {"frame_bytes": layout.bytes, "filled_bytes": layout.arena}
        self.words |= {"fills": self._named("fills", own), "fill_count": len(own)}
        self.words |= {"frame_fills": self._named("frame_fills", others), "frame_fill_count": len(others)}
        self.words |= {"functions": address_of(functions), "offsets": address_of(starts), "steps": len(functions)}
        if layout.arena_bytes:
            pool = result_arrays.pool()
            assert pool is not None
            self.words |= {"arena_bytes": layout.arena_bytes, "arena_context": pool.address}
            self.words |= {"arena_malloc": pool.malloc, "arena_free": pool.free}
        creations = {creation.position: creation for creation in executable.plan.created}
        if creations:
            self.words |= {"creation": layout.creation, "created": self._table([list(creations)])}
            self.words["lacking"] = self._id(functools.partial(store_failure, executable.plan.created))
        rows = []
        for k, ((shape, dtype), offset, is_large) in enumerate(zip(instance.results, layout.results, layout.large, strict=True)):
            if k in description.caller_arrays:
                rows.append([Result.GIVEN, 0, 0, 0, description.caller_arrays[k], 0])
                continue
            if k in creations:
                rank = creations[k].rank - creations[k].has_parts
                rows.append([Result.CREATED, self._id(dtype), rank, 0, 0, 0])
                continue
            result_type = dtype.type if shape else description.numbers.get(k, dtype.type)
            kind = Result.LARGE if is_large else Result.SMALL if shape else _OF_PYTHON.get(result_type, Result.NUMBER)
            allocate = 0 if shape else abi.allocator(result_type)
            is_python = result_type is not dtype.type
            if is_python and (np.dtype(result_type) != dtype or (result_type in (float, complex) and not allocate)):
                raise NotNative(f"a result is a Python {result_type.__name__}, computed as {dtype}")
            operand = self._table([shape]) if shape else self._id(result_type)
            rows.append([kind, self._id(dtype), len(shape), operand, offset, allocate])
        self.words |= {"results": self._named("results", rows), "result_count": len(rows)}
        if any(layout.large):
            pool = result_arrays.pool()
            assert pool is not None
            self.words["context"] = self._id(pool.new_context())

    def _results(self, description: Description, instance: Instance | None) -> None:
        count = 0 if instance is None else len(instance.results)
        rows, position = [], 0
        for kind, a, keys in description.build:
            position -= a if kind in CONTAINERS else 0
            if kind is Build.OBJECT:
                rows.append([kind, id(None) if a is None else self._id(a), 0, position])
            elif kind is Build.CALL:
                rows.append([kind, a, self._id(keys), position])
            else:
                rows.append([kind, a, self._table([[self._id(k) for k in keys]]) if keys else 0, position])
            position += 1
        self.words |= {"build": self._named("build", rows), "build_count": len(rows)}
        self.words |= {"first_result": len(description.nodes), "registers": len(description.nodes) + count}
        self._memory(description)

    def _memory(self, description: Description) -> None:
        """Fill in the demands on the memory of arrays, and the arrays to fill."""
        rows = []
        for kind, register, a in description.demands:
            match kind:
                case Demand.STRIDES:
                    rows.append([kind, register, self._table([a]), 0])
                case Demand.APART:
                    rows.append([kind, 0, self._table(a), len(a)])
                case _:
                    rows.append([kind, register, a or 0, 0])
        self.words |= {"demands": self._table(rows), "demand_count": len(rows)}
        self.words |= {"puts": self._table(description.puts), "put_count": len(description.puts)}


_OF_PYTHON = {int: Result.INT, bool: Result.BOOL, complex: Result.COMPLEX}
"""The kinds of results that are Python numbers; a float is created like NumPy's."""


class _FrameLayout:
    """The layout of a frame: the argument block, boxes of scalars that the program takes by address, scalars that it returns,
    and the temporaries if they are small. Offsets are in bytes."""

    def __init__(
        self, executable: Executable, instance: Instance, sources: Sequence[Source], first_result: int, callers: Mapping[int, int]
    ) -> None:
        self.instance = instance
        self.sources = sources
        self.first_result = first_result
        self.executable = executable
        self.boxes: dict[int, int] = {}
        end = 8 * len(instance.block)
        end += -end % BOX_BYTES
        for k, _ in executable.plan.boxed:
            self.boxes[k] = end
            end += BOX_BYTES
        self.results: list[int] = []
        for k, (shape, _) in enumerate(instance.results):
            is_inside = not shape and k not in callers
            self.results.append(end if is_inside else 0)
            end += BOX_BYTES if is_inside else 0
        self.creation = end
        end += 8 * len(CREATION) if executable.plan.created else 0
        end += -end % ALIGNMENT
        self.arena = end
        has_pool = result_arrays.pool() is not None if instance.large or instance.arena_bytes > SMALL_ARENA else False
        self.arena_bytes = instance.arena_bytes if has_pool and instance.arena_bytes > SMALL_ARENA else 0
        self.bytes = end + (0 if self.arena_bytes else instance.arena_bytes)
        self.large = instance.large if has_pool and instance.large else (False,) * len(instance.results)

    def write(self, frame: Any, create: int) -> None:
        """Write the parts of a frame that are the same for all calls. ``create``: the function that creates results."""
        block = frame[: 8 * len(self.instance.block)].view(np.int64)
        block[:] = self.instance.block
        for position in self.instance.creation[:1]:
            block[position] = create
        for name, position, k in self.instance.scalars:
            if self.sources[k].kind == "constant":
                _put(frame, position * DTYPES[name].bytes, np.asarray(self.sources[k].value, DTYPES[name].numpy))
        for k, dtype in self.executable.plan.boxed:
            if self.sources[k].kind == "constant":
                _put(frame, self.boxes[k], np.array(self.sources[k].value, dtype))

    def fills(self, address: int, frame: Any) -> tuple[list[list[int]], list[list[int]]]:
        """Return the fills of each call, and the further fills of a frame that is not at ``address``; for the frame at
        ``address`` the latter are written here."""
        own: list[list[int]] = []
        others: list[list[int]] = []
        count = len(self.sources)
        for target in self.instance.creation[1:]:
            others.append([Fill.FRAME, 0, 8 * target, self.creation])
            _put(frame, 8 * target, np.array(address + self.creation, np.int64))
        for target, row, shift in zip(*(table.tolist() for table in self.instance.tables[2:5]), strict=True):
            inside = self._inside(row - count if row >= count else None, row)
            if inside is not None:
                others.append([Fill.FRAME, 0, 8 * target, inside + shift])
                _put(frame, 8 * target, np.array(address + inside + shift, np.int64))
            elif row < count:
                if self.sources[row].kind != "array":
                    raise NotNative("a number is passed as an array")
                own.append([Fill.POINTER, self.sources[row].register, 8 * target, shift])
            elif row < count + len(self.results):
                own.append([Fill.POINTER, self.first_result + row - count, 8 * target, shift])
            else:
                own.append([Fill.ARENA, 0, 8 * target, shift])
        for target, k, axis in self.instance.strides:
            if self.sources[k].kind != "array":
                raise NotNative("a number is passed as an array")
            own.append([Fill.STRIDE, self.sources[k].register, 8 * target, 8 * axis])
        for name, position, k in self.instance.scalars:
            own += self._number(k, DTYPES[name].numpy, position * DTYPES[name].bytes)
        for k, dtype in self.executable.plan.boxed:
            own += self._number(k, dtype, self.boxes[k])
        return own, others

    def _inside(self, result: int | None, row: int) -> int | None:
        """Return the offset in the frame of a buffer, by its row in the table of addresses; None if it is elsewhere."""
        if result is None:
            return self.boxes.get(row)
        if result < len(self.results):
            return self.results[result] or None
        return None if self.arena_bytes else self.arena

    def _number(self, k: int, dtype: Any, target: int) -> list[list[int]]:
        source = self.sources[k]
        if source.kind == "constant":
            return []
        if source.kind == "array" or np.dtype(source.dtype) != dtype:
            raise NotNative(f"{source.dtype} is passed as {dtype}")
        kind = {"element": Fill.ELEMENT, "number": Fill.VALUE, "int": Fill.INTEGER, "bool": Fill.BOOL}[source.kind]
        return [[kind, source.register, target, dtype.itemsize]]


def _put(frame: Any, offset: int, value: Any) -> None:
    frame[offset : offset + value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)


class Table:
    """A hash table of records, which it keeps alive. Records are only added; removing some creates another table."""

    __slots__ = ("array", "records")

    def __init__(self, records: Sequence[Record]) -> None:
        size = 8
        while size < 4 * len(records):
            size *= 2
        self.array = np.zeros(len(TABLE) + len(SLOT) * size, np.int64)
        self.array[TABLE.index("mask")] = size - 1
        self.records: list[Record] = []
        for record in records:
            self.add(record)

    @property
    def has_room(self) -> bool:
        return 2 * len(self.records) < int(self.array[TABLE.index("mask")])

    def add(self, record: Record) -> None:
        """Insert a record into the first free slot from the one of its hash on; there always is one."""
        self.records.append(record)
        mask = int(self.array[TABLE.index("mask")])
        at, k = len(TABLE), record.hash & mask
        while self.array[at + 2 * k + 1]:
            k = (k + 1) & mask
        self.array[at + 2 * k] = record.hash
        self.array[at + 2 * k + 1] = record.address
        self.array[TABLE.index("only")] = self.records[0].address
        self.array[TABLE.index("count")] = len(self.records)


class Dispatch:
    """The records of a function, found by the hash of a call. Callables hold it, and native code reads ``table`` at each
    lookup. ``unserved(callable, *args, **kwargs)`` serves calls without a record; None for ``Jitted.__call__``.

    A table and all that it refers to live as long as it can be reached from here; native code holds the records that it has
    found. So threads may add and remove concurrently: at worst a record is no longer found, and its calls go through Python.
    """

    __slots__ = ("table", "unserved")

    def __init__(self, unserved: Any = None) -> None:
        self.table = Table(())
        self.unserved = unserved

    def __len__(self) -> int:
        return len(self.table.records)

    def add(self, record: Record) -> None:
        """Add a record, if none serves the same calls."""
        if any(record.is_like(other) for other in self.table.records):
            return
        if self.table.has_room:
            self.table.add(record)
        else:
            self.table = Table([*self.table.records, record])

    def keep(self, alive: Collection[int]) -> None:
        """Remove all records whose entries do not have one of these ids."""
        records = self.table.records
        kept = [record for record in records if id(record.entry) in alive]
        if len(kept) < len(records):
            self.table = Table(kept)
