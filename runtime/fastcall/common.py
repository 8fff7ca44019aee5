"""Shared parts of the native functions of the fast call: addresses of the API, reference counts, table fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullback.ir.core.records import dataclass
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.llvm_builder import NULL, Native, Operand, Word, function_at
from pullback.runtime.fastcall.record_layout import TABLES

STATE = "pullback_call_state"
STATE_FIELDS = ("plain", "variable", "dispatch", "clock", "get", "method")
"""``plain``: the function that serves a call in Python; ``variable``: the context variable that holds the current trace;
``dispatch``: the type of dispatches; ``clock``: the C library's clock_gettime, or 0; ``get``: the ``__get__`` of callables;
``method``: the type of their bound methods."""
GLOBALS = f"@{STATE} = internal global [{len(abi.ADDRESSES) + len(STATE_FIELDS)} x i64] zeroinitializer\n"

_POINTERS = frozenset((
    "owner", "names", "nodes", "guards", "reads", "watch", "frame", "fills", "frame_fills", "functions", "offsets", "results",
    "context", "build", "finish", "failed", "leaves", "type", "dtype", "shape", "slots", "only", "arena_context", "arena_malloc",
    "arena_free", "demands", "puts", "attempt", "warm", "state", "created", "lacking", "record", "thread",
))  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A native function of the fast call. ``write`` emits its body, given an Entrance and its operands."""

    symbol: str
    result: str
    parameters: tuple[str, ...]
    is_inline: bool
    is_internal: bool
    write: Callable[..., None]

    @property
    def text(self) -> str:
        """The LLVM text of the function."""
        f = Entrance(self.symbol, self.parameters, self.result, internal=self.is_internal, inline=self.is_inline)
        self.write(f, *f.parameters)
        return f.text


def part(result: str, *parameters: str, symbol: str = "", is_inline: bool = False) -> Callable[[Callable[..., None]], Part]:
    """Return a decorator that turns a function that emits a body into a Part. Its symbol is ``symbol``, then visible from
    outside, or the function's name."""

    def decorate(write: Callable[..., None]) -> Part:
        name = symbol or write.__name__.lstrip("_")
        return Part(name, result, parameters, is_inline, not symbol, write)

    return decorate


class Entrance(Native):
    """A builder of one native function of the fast call."""

    def use(self, called: Part, *operands: Operand) -> Word:
        """Emit a call of a part, and return its result."""
        return self.call(called.result, function_at(called.symbol), *operands)

    def on_stack(self, frame: Word, bytes: Word, filled: Word) -> Word | None:
        """Return a copy on the stack of a frame of ``bytes`` bytes, of which the first ``filled`` are initialised; None if
        frames are not on the stack."""
        return None

    def api(self, name: str) -> Word:
        """Load an address of Python's or NumPy's API."""
        return self.load(self._state(abi.ADDRESSES.index(name)), 0, "ptr")

    def state(self, name: str) -> Word:
        return self.load(self._state(len(abi.ADDRESSES) + STATE_FIELDS.index(name)), 0, "ptr")

    def _state(self, index: int) -> Word:
        return self.at(function_at(STATE), 8 * index)

    def field(self, table: str, base: Word, name: str) -> Word:
        """Load a field of a table."""
        return self.load(base, 8 * TABLES[table].index(name), "ptr" if name in _POINTERS else "i64")

    def pointer(self, table: str, base: Word, name: str) -> Word:
        return self.load(base, 8 * TABLES[table].index(name), "ptr")

    def set_field(self, table: str, base: Word, name: str, value: Operand) -> None:
        self.store(value, base, 8 * TABLES[table].index(name))

    def row(self, table: str, base: Word, index: Word) -> Word:
        """Return the address of row ``index`` of a table."""
        return self.at(base, self.mul(index, 8 * len(TABLES[table])))

    def python(self, result: str, name: str, *operands: Operand) -> Word:
        """Emit a call of a function of Python's or NumPy's API, and return its result."""
        return self.call(result, self.api(name), *operands)

    def incref(self, x: Word) -> None:
        """Increment the reference count of an object, which is not null."""
        if abi.COUNTS_PLAINLY:
            self.store(self.add(self.load(x), 1), x)
        else:
            self.python("void", "Py_IncRef", x)

    def decref(self, x: Word) -> None:
        """Decrement the reference count of an object, or of null."""
        if not abi.COUNTS_PLAINLY:
            self.python("void", "Py_DecRef", x)
            return
        with self.unless(self.is_null(x)):
            left = self.sub(self.load(x), 1)
            self.store(left, x)
            with self.when(self.eq(left, 0)):
                self.python("void", "_Py_Dealloc", x)

    def type_of(self, x: Word) -> Word:
        return self.load(x, abi.TYPE, "ptr")

    def same(self, a: Word, b: Word) -> Word:
        return self.eq(a, b)

    @contextmanager
    def case(self, kind: Word, *values: int) -> Iterator[None]:
        """Run the code emitted inside if ``kind`` is one of ``values``."""
        matches = self.eq(kind, values[0])
        for value in values[1:]:
            matches = self.bit_or(matches, self.eq(kind, value))
        with self.when(matches):
            yield


__all__ = ["GLOBALS", "NULL", "STATE", "STATE_FIELDS", "Entrance", "Operand", "Part", "Word", "function_at", "part"]
