"""Values of a kernel as LLVM has them: scalars, and vectors of the width of the loop that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pullback.codegen.cpu.llvm.lanes import Lanes, element, splat, wide
from pullback.codegen.cpu.llvm.text import Writer
from pullback.codegen.targets import Target
from pullback.ir.core.types import I64, DType
from pullback.ir.core.value import Value

EARLY = 8
"""A vector register of so many has a value that is the same in all lanes of a vector loop: of 64 bytes there are 32, else 16."""


class Values(Writer):
    """``width``: the lanes of the vector loop that is being written, 1 outside one. ``env``: what each value is. ``start``: where
    that loop begins, as a line and the number of the last value before it; ``index``: the value that counts its lanes."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.width = 1
        self.env: dict[Value, Lanes] = {}
        self.sizes: dict[str, Lanes] = {}
        self.splats: dict[tuple[str, str, int | None], str] = {}
        self.early: dict[tuple[str, str, int | None], str] = {}
        self.start: tuple[int, int] | None = None
        self.index: Value | None = None

    def extent(self, extent: int | str) -> Lanes:
        return Lanes(str(extent)) if isinstance(extent, int) else self.sizes[extent]

    def vector(self, lanes: Lanes, dtype: DType, width: int | None = None) -> str:
        """A value as a vector of the present width (a scalar outside vector loops)."""
        width = width or self.width
        if lanes.each:
            return self.spread(lanes, element(dtype), width)
        if width == 1 or lanes.step is None:
            return lanes.text
        key = (lanes.text, element(dtype), lanes.step)
        if key in self.early:
            return self.early[key]
        if key not in self.splats:
            if self.is_early(lanes):
                return self.spread_early(lanes, key)
            self.splats[key] = self.spread(lanes, element(dtype), width)
        return self.splats[key]

    def is_early(self, lanes: Lanes) -> bool:
        """Whether a value of a vector loop had better be spread over a vector before it: a scalar from before, one of few."""
        return self.is_from_before(lanes) and len(self.early) < self.target.vector_bytes // EARLY

    def is_from_before(self, lanes: Lanes) -> bool:
        """Whether a value of a vector loop is a scalar from before it."""
        is_known = self.start is not None and lanes.text[2:].isdigit() and int(lanes.text[2:]) <= self.start[1]
        return is_known and lanes.step == 0

    def spread_early(self, lanes: Lanes, key: tuple[str, str, int | None]) -> str:
        """A vector that is made before the present vector loop."""
        with self.before_loop():
            self.early[key] = self.spread(lanes, key[1], self.width)
        return self.early[key]

    @contextmanager
    def before_loop(self) -> Iterator[None]:
        """What is written inside stands before the present vector loop."""
        assert self.start is not None
        place, count = self.start
        later, self.lines[place:] = self.lines[place:], []
        known, self.known = self.known, {}
        yield
        self.known = known
        self.start = len(self.lines), count
        self.lines += later

    def spread(self, lanes: Lanes, name: str, width: int) -> str:
        t = wide(name, width)
        if lanes.step == 0 and not lanes.each and not lanes.text.startswith("%"):
            return splat(name, lanes.text, width)
        first = self.let(f"insertelement {t} poison, {name} {lanes.text}, i64 0")
        spread = self.let(f"shufflevector {t} {first}, {t} poison, <{width} x i32> zeroinitializer")
        if not lanes.step and not lanes.each:
            return spread
        steps = ", ".join(f"i64 {k}" for k in lanes.each or (n * (lanes.step or 0) for n in range(width)))
        return self.let(f"add {t} {spread}, <{steps}>")

    def add(self, a: Lanes, b: Lanes) -> Lanes:
        """The sum of two i64 values."""
        if a.literal == 0:
            return b
        if b.literal == 0:
            return a
        if (a.each and b.is_scalar) or (b.each and a.is_scalar):
            return Lanes(self.add(Lanes(a.text), Lanes(b.text)).text, None, a.each or b.each)
        if a.step is None or b.step is None:
            i64 = wide("i64", self.width)
            return Lanes(self.let(f"add {i64} {self.i64(a)}, {self.i64(b)}"), None)
        if a.text == "0" or b.text == "0":
            return Lanes(b.text if a.text == "0" else a.text, a.step + b.step)
        return Lanes(self.let(f"add i64 {a.text}, {b.text}"), a.step + b.step)

    def multiply(self, a: Lanes, b: Lanes) -> Lanes:
        """The product of two i64 values."""
        known, factor = a.literal, b.literal
        if known is not None:
            a, b, known, factor = b, a, factor, known
        if factor == 1 or known == 0:
            return a
        if factor == 0:
            return b
        if a.step is None or b.step is None or (a.step and factor is None) or b.step:
            if a.is_scalar and b.is_scalar:
                return Lanes(self.let(f"mul i64 {a.text}, {b.text}"))
            i64 = wide("i64", self.width)
            return Lanes(self.let(f"mul {i64} {self.i64(a)}, {self.i64(b)}"), None)
        return Lanes(self.let(f"mul i64 {a.text}, {b.text}"), a.step * (factor or 0))

    def i64(self, lanes: Lanes) -> str:
        return self.vector(lanes, I64)
