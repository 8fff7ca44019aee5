"""How large the tiles and blocks of matrix products are, by the analytical model of Low, Igual, Smith and Quintana-Orti (2016):
"Analytical modeling is enough for high-performance BLIS".

The sums of a tile fill the registers that the operands leave; where there are 16, half of its rows do, and the other half goes
through the same panels once more. In the time that its terms take, they come from memory near enough: the packed rows of the left
operand from the first cache, a panel of columns of the right one through it from the second, where all panels of a block stay,
and the block's sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.types import DType

LINE = 64
GROUP = 4
"""So many rows or columns are turned together where terms are neighbours in memory; a tile has a multiple of it."""
BESIDE = 2
"""So many vectors of a panel are looked at side by side: the least of two integers of 64 bits takes several cycles."""
AT_ONCE = 2
"""So many terms a tile of real sums multiplies before it counts: what counts takes turns with multiply-adds."""
ROWS, VECTORS = 12, 2
"""The rows of panels of real numbers, and the vectors of a tile's row."""
LOW = 8
"""The rows of lower tiles; there are some of half as many where registers hold the sums of fewer."""
SAVED = 100
"""A lower tile is not worth its compilation if it saves less than one row in so many."""
HELD = 24
"""The registers for sums where there are 32."""
FIRST_CACHE = 32 << 10
"""The bytes of the first cache; the same for all processors, so that the order of additions is."""
MOST_TERMS = 1024
"""The bytes of one row that are packed at a time."""
WORTH = 1 << 17
"""So many cycles of multiply-adds are worth a second thread."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A tile: ``rows`` by ``vectors`` of so many ``lanes``. ``sums``: how many vectors of them are in registers at a time;
    ``terms``: how many are packed at a time; ``most_wide``, ``most_high``: the panels of columns and of rows of a block;
    ``near``: the elements that the second cache has room for beside them; ``worth``: the products that are worth a second
    thread. ``planes``: the numbers of an element, 2 of a complex one."""

    rows: int
    vectors: int
    sums: int
    lanes: int
    terms: int
    most_wide: int
    most_high: int
    near: int = 0
    planes: int = 1

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def lows(self) -> tuple[int, ...]:
        """How many rows a panel's tiles have sums of if it has so few or less: the fewest last."""
        if self.rows <= LOW or self.planes > 1:
            return ()
        return (LOW,) if self.high(self.vectors) > LOW else (LOW, LOW // 2)

    def most_rows(self, low: int) -> int:
        """The rows of the largest product for which a lower tile is worth it."""
        return SAVED * (self.rows - low)

    def high(self, vectors: int) -> int:
        """Of how many rows of so many vectors the sums are in registers at a time."""
        return self.sums // (vectors * self.planes)

    def passes(self, rows: int) -> list[range]:
        """The rows of a tile that has so many, in parts whose sums are in registers at a time, of as many rows each as can be."""
        each = -(-rows // -(-rows // self.high(self.vectors)))
        return [range(first, min(first + each, rows)) for first in range(0, rows, each)]

    @property
    def panel(self) -> int:
        """How far apart packed panels lie: some vectors are behind the end of each. No power of two either."""
        return max(self.rows, self.columns) * self.planes * self.terms + self.behind * self.lanes

    @property
    def at_once(self) -> int:
        """How many terms a tile multiplies at once."""
        return AT_ONCE if self.planes == 1 else 1

    @property
    def behind(self) -> int:
        """How many vectors of zeros are behind the end of a panel: what is looked at, or multiplied, with the last ones."""
        return max(BESIDE, -(-(self.at_once - 1) * max(self.rows, self.columns) // self.lanes))

    @property
    def strip(self) -> int:
        """How far apart rows of sums lie: not a power of two, which would bring them to the same places of a cache."""
        return self.most_wide * self.columns * self.planes + self.lanes

    @property
    def worth(self) -> int:
        return WORTH * self.lanes // self.planes**2


def shape_for(target: Target, dtype: DType, planes: int = 1) -> Shape:
    """The shape of products of floats on a machine, or of complex numbers of two such ``planes``."""
    lanes = max(1, target.vector_bytes // dtype.bytes)
    rows, each = ROWS // planes, planes * dtype.bytes
    terms = _terms(rows, each)
    panel = terms * VECTORS * lanes * each
    most_wide = max(1, target.cache // 2 // panel)
    row = rows * most_wide * VECTORS * lanes * each
    return Shape(
        rows=rows, vectors=VECTORS, sums=_sums(target, planes), lanes=lanes, terms=terms, most_wide=most_wide,
        most_high=max(1, 8 * target.cache // row), near=target.cache // 4 // each, planes=planes,
    )  # fmt: skip


def _sums(target: Target, planes: int) -> int:
    """How many registers sums may have: a complex term takes up to six for its operands, a real one up to four."""
    if target.vector_bytes == WIDEST:
        return HELD
    return 12 if planes == 1 else 8


def _terms(rows: int, bytes_: int) -> int:
    """As many as fill three eighths of the first cache with the rows of a tile, but the same bytes of each row at most."""
    return min(MOST_TERMS // bytes_, FIRST_CACHE * 3 // 8 // (rows * bytes_))
