"""The layout of a contraction as a batch of matrix products, chosen so that as few arrays as possible are transposed.

The letters of a contraction fall into four parts: batch, rows, columns, and summed letters (K). An operand, or the result, is
read in place if the letters of each part are adjacent in it, in the same order everywhere, and its last part is not the batch:
elements adjacent in memory then belong to one product. A letter of one operand alone may count as batch, too, if nothing is
transposed then: the other operand is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import Extent

LEAST_SHARED_EXTENT = 32
"""Rows or columns below which products do not pay for packing an operand that they share."""


@dataclass(frozen=True)
class Layout:
    """The parts of the letters, and the letters of the left operand, the right operand and the result in the order in which
    they are read and written."""

    batch: str
    rows: str
    columns: str
    summed: str
    words: tuple[str, str, str]

    def parts(self, position: int) -> list[str]:
        """Return the parts of one of the words, in its order."""
        present = [part for part in (self.batch, self.rows, self.columns, self.summed) if part and part in self.words[position]]
        return sorted(present, key=self.words[position].index)


def layout(left: str, right: str, out: str, extents: Mapping[str, Extent]) -> Layout:
    """Return the layout that transposes the fewest arrays; rows are the letters of the left operand."""
    candidates: list[tuple[int, Layout]] = []
    common = set(left) & set(right)
    for batch, summed in _splits(left, right, out, extents):
        rows = "".join(k for k in out if k in left and k not in batch)
        columns = "".join(k for k in out if k in right and k not in batch)
        parts = (batch, rows, columns, summed)
        words = tuple(_word(word, parts, position) for position, word in enumerate((left, right, out)))
        moved = sum(new != old for new, old in zip(words, (left, right, out), strict=True))
        if moved and batch and not set(batch) <= common:
            continue
        candidates.append((moved, Layout(*parts, (words[0], words[1], words[2]))))
    return min(candidates, key=lambda pair: pair[0])[1]


def _splits(left: str, right: str, out: str, extents: Mapping[str, Extent]) -> Iterator[tuple[str, str]]:
    """Yield candidates for the batch and the summed letters, the simplest first."""
    common = "".join(k for k in out if k in left and k in right)
    orders = dict.fromkeys("".join(k for k in word if k not in out) for word in (left, right))
    yield from ((common, summed) for summed in orders)
    for word in () if common else (left, right):
        free = "".join(k for k in out if k in word)
        for size in range(1, len(free)):
            for first in range(len(free) - size + 1):
                batch = free[first : first + size]
                other_extents = [extents[k] for k in free if k not in batch]
                if not all(isinstance(e, int) and e < LEAST_SHARED_EXTENT for e in other_extents):
                    yield from ((batch, summed) for summed in orders)


def _word(word: str, parts: tuple[str, str, str, str], position: int) -> str:
    """Return the letters of an operand, or of the result, in the order in which they are read or written: in place, if
    possible."""
    batch, rows, columns, summed = ("".join(k for k in part if k in word) for part in parts)
    present = [part for part in parts if part and part in word]
    endings = [part for part in present if word.endswith(part)]
    if sum(map(len, present)) == len(word) and endings != [batch]:
        return word
    return batch + (rows + columns if position == 2 else rows + summed if position == 0 else summed + columns)
