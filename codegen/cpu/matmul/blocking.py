"""Compute tile and block sizes of matrix products by the analytical model of Low, Igual, Smith and Quintana-Orti (2016),
"Analytical modeling is enough for high-performance BLIS".

The accumulators of a tile fill the registers that the operands leave free. With 16 registers a tile takes two passes over the
same panels, half of its rows in each. During one K block the packed rows of the left operand stay in L1; the panel of columns
of the right operand streams through L1 from L2, which holds all panels of a block and the block's sums.
"""

from __future__ import annotations

from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DType

LINE = 64
"""Bytes of a cache line."""
TRANSPOSE_GROUP = 4
"""Rows or columns that are transposed in registers at a time where K is contiguous; the tile size is a multiple of it."""
SCAN_UNROLL = 2
"""Vectors of a panel scanned per iteration for subnormals. A minimum of 64-bit integers has a latency of several cycles, which
independent ones hide."""
K_UNROLL = 2
"""K iterations of a real microkernel per loop iteration, so that loop control overlaps multiply-adds."""
ROWS, VECTORS = 12, 2
"""Rows of a panel of real numbers, and vectors in a row of a tile."""
SHORT_ROWS = 8
"""Rows of the short microkernel; one of half as many exists where registers hold the accumulators of fewer rows."""
SAVED = 100
"""A short microkernel is compiled only for products in which it saves at least one row in this many."""
ACCUMULATORS_OF_32 = 24
"""Registers used as accumulators where there are 32."""
L1_BYTES = 32 << 10
"""Bytes of L1, the same for all processors so that the order of additions is the same."""
MAX_K_BYTES = 1024
"""Largest extent of a K block, in bytes of one row."""
WORTH = 1 << 17
"""Cycles of multiply-adds from which a second thread pays for itself."""


@dataclass(frozen=True, kw_only=True)
class Blocking:
    """The blocking of products of one dtype on one machine: tiles of ``rows`` by ``vectors`` vectors of ``lanes``.

    ``sums``: accumulator registers used at a time. ``terms``: extent of a K block. ``most_wide``, ``most_high``: column and
    row panels of a block, at most. ``near``: elements that fit in L2 in addition to the panels. ``planes``: numbers per
    element, 2 for complex ones.
    """

    rows: int
    vectors: int
    accumulators: int
    lanes: int
    k_block: int
    max_column_panels: int
    max_row_panels: int
    l2_elements: int = 0
    planes: int = 1

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def short_rows(self) -> tuple[int, ...]:
        """Rows of the short microkernels, tallest first; a panel with at most that many rows uses one."""
        if self.rows <= SHORT_ROWS or self.planes > 1:
            return ()
        return (SHORT_ROWS,) if self.rows_in_registers(self.vectors) > SHORT_ROWS else (SHORT_ROWS, SHORT_ROWS // 2)

    def max_rows_for_short(self, short: int) -> int:
        """Return the most rows of a product for which a short microkernel pays."""
        return SAVED * (self.rows - short)

    def rows_in_registers(self, vectors: int) -> int:
        """Return how many rows of ``vectors`` vectors fit in the accumulators at a time."""
        return self.accumulators // (vectors * self.planes)

    def passes(self, rows: int) -> list[range]:
        """Return the row ranges of a tile, one for each pass over its panels, of nearly equal length, each fitting in the
        accumulators."""
        each = -(-rows // -(-rows // self.rows_in_registers(self.vectors)))
        return [range(first, min(first + each, rows)) for first in range(0, rows, each)]

    @property
    def panel_stride(self) -> int:
        """Stride between packed panels in elements: the panel and the padding vectors behind it. It is not a power of two, so
        that panels do not compete for the same cache sets."""
        return max(self.rows, self.columns) * self.planes * self.k_block + self.padding_vectors * self.lanes

    @property
    def k_unroll(self) -> int:
        """K iterations per iteration of the microkernel's loop."""
        return K_UNROLL if self.planes == 1 else 1

    @property
    def padding_vectors(self) -> int:
        """Vectors of zeros behind the end of a panel, which the last scan or the last unrolled iteration reads."""
        return max(SCAN_UNROLL, -(-(self.k_unroll - 1) * max(self.rows, self.columns) // self.lanes))

    @property
    def sums_stride(self) -> int:
        """Stride between rows of sums in elements; not a power of two, which would map rows to the same cache sets."""
        return self.max_column_panels * self.columns * self.planes + self.lanes

    @property
    def parallel_threshold(self) -> int:
        """Multiply-adds from which a second thread pays for itself."""
        return WORTH * self.lanes // self.planes**2


def blocking_for(target: Target, dtype: DType, planes: int = 1) -> Blocking:
    """Return the blocking of products of a float dtype on a machine; ``planes`` is 2 for complex numbers made of such floats."""
    lanes = max(1, target.vector_bytes // dtype.bytes)
    rows, element_bytes = ROWS // planes, planes * dtype.bytes
    k_block = _k_block(rows, element_bytes)
    panel = k_block * VECTORS * lanes * element_bytes
    most_wide = max(1, target.cache // 2 // panel)
    row = rows * most_wide * VECTORS * lanes * element_bytes
    return Blocking(
        rows=rows,
        vectors=VECTORS,
        accumulators=_accumulators(target, planes),
        lanes=lanes,
        k_block=k_block,
        max_column_panels=most_wide,
        max_row_panels=max(1, 8 * target.cache // row),
        l2_elements=target.cache // 4 // element_bytes,
        planes=planes,
    )


def _accumulators(target: Target, planes: int) -> int:
    """Return the number of accumulator registers. A complex iteration takes up to six registers for its operands, a real one
    up to four."""
    if target.vector_bytes == WIDEST:
        return ACCUMULATORS_OF_32
    return 12 if planes == 1 else 8


def _k_block(rows: int, bytes_: int) -> int:
    """Return the extent of a K block: the rows of a tile fill three eighths of L1, with at most ``MAX_K_BYTES`` of each row."""
    return min(MAX_K_BYTES // bytes_, L1_BYTES * 3 // 8 // (rows * bytes_))
