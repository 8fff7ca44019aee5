"""Represent the values of a kernel in LLVM: scalars, and vectors of the width of the current loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pullback.codegen.cpu.llvm.lanes import Lanes, element, splat, vector_of
from pullback.codegen.cpu.llvm.text import Writer
from pullback.codegen.targets import Target
from pullback.ir.core.types import I64, DType
from pullback.ir.core.value import Value

BYTES_PER_HOISTED = 8
"""Bytes of a vector register per value that is broadcast before a vector loop: 8 values of the 32 registers of 64 bytes, 4 of
the 16 smaller ones."""


class Values(Writer):
    """A writer of scalar and vector values.

    ``width``: the lanes of the current vector loop, 1 outside one. ``env``: the form of each value. ``start``: the line where
    that loop begins and the number of the last value before it; ``index``: the loop's index.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.width = 1
        self.env: dict[Value, Lanes] = {}
        self.sizes: dict[str, Lanes] = {}
        self.splats: dict[tuple[str, str, int | None], str] = {}
        self.hoisted: dict[tuple[str, str, int | None], str] = {}
        self.start: tuple[int, int] | None = None
        self.index: Value | None = None

    def extent(self, extent: int | str) -> Lanes:
        """Return an extent, which is an integer or the name of a size."""
        return Lanes(str(extent)) if isinstance(extent, int) else self.sizes[extent]

    def vector(self, lanes: Lanes, dtype: DType, width: int | None = None) -> str:
        """Return a value as a vector of ``width`` lanes, by default the current width; a scalar outside vector loops."""
        width = width or self.width
        if lanes.per_lane:
            return self.broadcast(lanes, element(dtype), width)
        if width == 1 or lanes.step is None:
            return lanes.text
        key = (lanes.text, element(dtype), lanes.step)
        if key in self.hoisted:
            return self.hoisted[key]
        if key not in self.splats:
            if self.should_hoist(lanes):
                return self.hoist_broadcast(lanes, key)
            self.splats[key] = self.broadcast(lanes, element(dtype), width)
        return self.splats[key]

    def should_hoist(self, lanes: Lanes) -> bool:
        """Return whether the broadcast of a value is hoisted out of the vector loop: it is loop-invariant, and few others are
        hoisted."""
        return self.is_loop_invariant(lanes) and len(self.hoisted) < self.target.vector_bytes // BYTES_PER_HOISTED

    def is_loop_invariant(self, lanes: Lanes) -> bool:
        """Return whether a value is a scalar computed before the current vector loop."""
        is_known = self.start is not None and lanes.text[2:].isdigit() and int(lanes.text[2:]) <= self.start[1]
        return is_known and lanes.step == 0

    def hoist_broadcast(self, lanes: Lanes, key: tuple[str, str, int | None]) -> str:
        """Broadcast a value before the current vector loop."""
        with self.before_loop():
            self.hoisted[key] = self.broadcast(lanes, key[1], self.width)
        return self.hoisted[key]

    @contextmanager
    def before_loop(self) -> Iterator[None]:
        """Enclose lines that are placed before the current vector loop."""
        assert self.start is not None
        position, count = self.start
        later, self.lines[position:] = self.lines[position:], []
        known, self.available = self.available, {}
        yield
        self.available = known
        self.start = len(self.lines), count
        self.lines += later

    def broadcast(self, lanes: Lanes, name: str, width: int) -> str:
        """Return a value in all lanes of a vector, plus its multiple of the lane if it has one."""
        t = vector_of(name, width)
        if lanes.step == 0 and not lanes.per_lane and not lanes.text.startswith("%"):
            return splat(name, lanes.text, width)
        first = self.let(f"insertelement {t} poison, {name} {lanes.text}, i64 0")
        spread = self.let(f"shufflevector {t} {first}, {t} poison, <{width} x i32> zeroinitializer")
        if not lanes.step and not lanes.per_lane:
            return spread
        steps = ", ".join(f"i64 {k}" for k in lanes.per_lane or (n * (lanes.step or 0) for n in range(width)))
        return self.let(f"add {t} {spread}, <{steps}>")

    def add(self, a: Lanes, b: Lanes) -> Lanes:
        """Return the sum of two i64 values."""
        if a.literal == 0:
            return b
        if b.literal == 0:
            return a
        if (a.per_lane and b.is_scalar) or (b.per_lane and a.is_scalar):
            return Lanes(self.add(Lanes(a.text), Lanes(b.text)).text, None, a.per_lane or b.per_lane)
        if a.step is None or b.step is None:
            i64 = vector_of("i64", self.width)
            return Lanes(self.let(f"add {i64} {self.i64(a)}, {self.i64(b)}"), None)
        if a.text == "0" or b.text == "0":
            return Lanes(b.text if a.text == "0" else a.text, a.step + b.step)
        return Lanes(self.let(f"add i64 {a.text}, {b.text}"), a.step + b.step)

    def multiply(self, a: Lanes, b: Lanes) -> Lanes:
        """Return the product of two i64 values."""
        constant, factor = a.literal, b.literal
        if constant is not None:
            a, b, constant, factor = b, a, factor, constant
        if factor == 1 or constant == 0:
            return a
        if factor == 0:
            return b
        if a.step is None or b.step is None or (a.step and factor is None) or b.step:
            if a.is_scalar and b.is_scalar:
                return Lanes(self.let(f"mul i64 {a.text}, {b.text}"))
            i64 = vector_of("i64", self.width)
            return Lanes(self.let(f"mul {i64} {self.i64(a)}, {self.i64(b)}"), None)
        return Lanes(self.let(f"mul i64 {a.text}, {b.text}"), a.step * (factor or 0))

    def i64(self, lanes: Lanes) -> str:
        """Return an i64 value as a vector of the current width."""
        return self.vector(lanes, I64)
