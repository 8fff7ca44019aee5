"""What an exported function is to who calls it from C, and the program behind it: what its entry and its header are written from.

A *place* says where a buffer is: ("argument", k), ("result", k), ("data", k) in the object, ("temporary", k) in the arena, or
("number", k), a constant that depends on extents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.types import DType, Extent
from pullback.ir.shapes.formulas import Formula, Scaled

Place = tuple[str, int]

STATUSES = (
    ("NO_MEMORY", "there is no memory for temporary arrays"),
    ("BAD_EXTENT", "an extent is outside the range that the function serves"),
    ("NOT_READY", "a function that the header lists was not given to {name}_init"),
    ("WRONG_CPU", "this processor lacks instructions that the code was made for"),
    ("INTERRUPTED", "the call was interrupted"),
)
"""The statuses that every function has, from 1; those of its own checks follow."""
CODES = {name: k for k, (name, _) in enumerate(STATUSES, 1)}
FIRST_CHECK = len(STATUSES) + 1

HOOKS = ("user", "parallel_for", "before_library", "after_library", "reallocate", "release", "poll")
"""The fields of a runtime, after its size in bytes and the number of threads; the addresses of needed functions follow."""

# What C and C++ would not take as a name.
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
    """A named extent and the values that the function serves; ``high`` None: any."""

    name: str
    low: int
    high: int | None


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """An array or number that is given or written. ``name`` is C's, ``place`` how Python writes it."""

    name: str
    place: str
    dtype: DType
    shape: tuple[Formula, ...]

    @property
    def by_value(self) -> bool:
        """Whether C passes it itself, and not its address."""
        return not self.shape and not self.dtype.is_complex


@dataclass(frozen=True, kw_only=True)
class Data:
    """An array in the object: its bytes, and what it was."""

    payload: bytes
    describe: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """A call of a kernel: its symbol, what its slots are, where its operands are, the extents of its sizes, those that BLAS and
    LAPACK are given, and the status that its first failure has."""

    symbol: str
    slots: tuple[tuple[Any, ...], ...]
    operands: tuple[Place, ...]
    itemsizes: tuple[int, ...]
    sizes: tuple[Extent, ...]
    limited: tuple[Extent, ...]
    first: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """An address that the caller gives: ``name`` as a field of C, its C type, what it is, and the slots that hold it. ``own``:
    the function of the object that takes its place where it is not given; empty if there is none."""

    name: str
    prototype: str
    describe: str
    slots: tuple[tuple[Any, ...], ...]
    own: str = ""

    @property
    def may_be_null(self) -> bool:
        """Whether it is data, of which there may be none."""
        return self.slots[0][0] == "ufunc" and self.slots[0][3] == "data"


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A result that is a copy: of what, and how many bytes."""

    result: int
    source: Place
    bytes: tuple[Extent, ...]


@dataclass(frozen=True, kw_only=True)
class Fill:
    """An array that a call makes by itself: ``kind`` "ramp", ``start`` plus ``step`` times the place, or "diagonal", ``step``
    where the column is the row plus ``start``, else 0. ``place`` is where; ``shape`` of the program's sizes."""

    kind: str
    dtype: DType
    start: int | float
    step: int | float
    shape: tuple[Extent, ...]
    place: Place


@dataclass(frozen=True, kw_only=True)
class Interface:
    """An exported function. ``sizes``: the program's sizes as formulas of the extents; ``temporaries``: for each place in the
    arena the sizes in bytes, as products, of what is put there; ``numbers``: constants by dtype."""

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
    copies: tuple[Copied, ...]
    needs: tuple[Need, ...]
    failures: tuple[tuple[str, str, str] | None, ...]
    features: tuple[str, ...]
    is_x86: bool
    manifest: str = ""

    @property
    def must_begin(self) -> bool:
        """Whether the caller must give something before the first call."""
        return any(not need.own for need in self.needs)

    @property
    def messages(self) -> list[str]:
        """What each status says, from 0."""
        own = [text.format(name=self.name) for _, text in STATUSES]
        interrupted = own[-1]
        checks = [interrupted if f is None else f"{f[0]}: {f[1]} ({f[2]})" if f[2] else f"{f[0]}: {f[1]}" for f in self.failures]
        return ["success", *own, *checks]


def c_names(wanted: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Different names of C for texts, in order."""
    used = set(taken)
    found = []
    for text in wanted:
        name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
        name = f"x{name}" if name[0].isdigit() else f"{name}_" if name in _KEYWORDS else name
        unique, k = name, 1
        while unique in used:
            k += 1
            unique = f"{name}_{k}"
        used.add(unique)
        found.append(unique)
    return found
