"""The C interface of an exported function and the program that it runs, from which its entry points and its header are
written.

A *location* identifies a buffer: ("argument", k), ("result", k), ("data", k) in the object, ("temporary", k) in the arena, or
("number", k), a constant that depends on extents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DType, Extent
from pullback.ir.shapes.formulas import Formula, Scaled

Location = tuple[str, int]
"""The kind of a buffer and its index."""

STATUSES = (
    ("NO_MEMORY", "there is no memory for temporary arrays"),
    ("BAD_EXTENT", "an extent is outside the range that the function serves"),
    ("NOT_READY", "a function that the header lists was not given to {name}_init"),
    ("WRONG_CPU", "this processor lacks instructions that the code was made for"),
    ("INTERRUPTED", "the call was interrupted"),
)
"""The statuses of every function, from 1; those of its own checks follow."""
CODES = {name: k for k, (name, _) in enumerate(STATUSES, 1)}
"""The status codes by name."""
FIRST_CHECK = len(STATUSES) + 1
"""The first status of a function's own checks."""

HOOKS = ("user", "parallel_for", "before_library", "after_library", "reallocate", "release", "poll")
"""The fields of a runtime, after its size in bytes and the number of threads; the addresses of needed functions follow."""

# The words that are no identifiers in C or C++.
_KEYWORDS = frozenset({
    "NULL", "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr",
    "continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float",
    "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "not", "nullptr", "operator", "or",
    "private", "protected", "public", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "template", "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "while", "xor",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """A named extent and the values that the function serves, from ``low`` to ``high``; ``high`` None: no upper bound."""

    name: str
    low: int
    high: int | None


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """An array or scalar that is passed or written. ``name`` is its name in C, ``path`` how Python writes it."""

    name: str
    path: str
    dtype: DType
    shape: tuple[Formula, ...]

    @property
    def by_value(self) -> bool:
        """Return whether C passes the scalar itself, not its address."""
        return not self.shape and not self.dtype.is_complex


@dataclass(frozen=True, kw_only=True)
class Data:
    """An array in the object: its bytes, and a description."""

    payload: bytes
    describe: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """A call of a kernel: its symbol, its argument slots, the locations of its operands, the extents of its sizes, the extents
    passed to BLAS and LAPACK (``limited``), and the status of its first failure."""

    symbol: str
    slots: tuple[tuple[Any, ...], ...]
    operands: tuple[Location, ...]
    itemsizes: tuple[int, ...]
    sizes: tuple[Extent, ...]
    limited: tuple[Extent, ...]
    first: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """An address that the caller provides: ``name`` as a field in C, its C type, a description, and the slots that contain it.
    ``own``: the function of the object that is used if none is provided; empty if there is none."""

    name: str
    prototype: str
    describe: str
    slots: tuple[tuple[Any, ...], ...]
    own: str = ""

    @property
    def may_be_null(self) -> bool:
        """Return whether it is a data pointer, which may be null."""
        return self.slots[0][0] == "ufunc" and self.slots[0][3] == "data"


@dataclass(frozen=True, kw_only=True)
class CopiedResult:
    """A result that is a copy: its source, and its size in bytes as a product."""

    result: int
    source: Location
    bytes: tuple[Extent, ...]


@dataclass(frozen=True, kw_only=True)
class Fill:
    """An array that a call computes from sizes alone: ``kind`` "ramp", ``start`` plus ``step`` times the index, or "diagonal",
    ``step`` where the column is the row plus ``start``, else 0. ``location``: its buffer; ``shape`` in the program's sizes."""

    kind: str
    dtype: DType
    start: int | float
    step: int | float
    shape: tuple[Extent, ...]
    location: Location


@dataclass(frozen=True, kw_only=True)
class Interface:
    """An exported function. ``sizes``: the program's sizes as formulas of the extents; ``temporaries``: for each position in
    the arena the sizes in bytes, as products, of the buffers that share it; ``numbers``: constants with their dtypes."""

    name: str
    extents: tuple[Bounds, ...]
    arguments: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    sizes: tuple[tuple[str, Formula], ...]
    data: tuple[Data, ...]
    numbers: tuple[tuple[DType, Formula | Scaled | bool | int | float], ...]
    fills: tuple[Fill, ...]
    steps: tuple[Step, ...]
    temporaries: tuple[tuple[tuple[Extent, ...], ...], ...]
    copies: tuple[CopiedResult, ...]
    needs: tuple[Need, ...]
    failures: tuple[tuple[str, str, str] | None, ...]
    features: tuple[str, ...]
    is_x86: bool
    manifest: str = ""

    @property
    def must_begin(self) -> bool:
        """Return whether the caller must provide an address before the first call."""
        return any(not need.own for need in self.needs)

    @property
    def messages(self) -> list[str]:
        """Return the messages of the statuses, from 0."""
        own = [text.format(name=self.name) for _, text in STATUSES]
        interrupted = own[-1]
        checks = [interrupted if f is None else f"{f[0]}: {f[1]} ({f[2]})" if f[2] else f"{f[0]}: {f[1]}" for f in self.failures]
        return ["success", *own, *checks]


def c_names(texts: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return distinct C identifiers for texts, in order."""
    used = set(taken)
    names = []
    for text in texts:
        name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
        name = f"x{name}" if name[0].isdigit() else f"{name}_" if name in _KEYWORDS else name
        unique, k = name, 1
        while unique in used:
            k += 1
            unique = f"{name}_{k}"
        used.add(unique)
        names.append(unique)
    return names
