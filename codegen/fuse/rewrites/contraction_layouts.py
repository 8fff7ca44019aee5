"""How a contraction is a batch of matrix products, so that as little as possible is rearranged.

Its letters fall into four parts: the batch, rows, columns, and what is summed. An operand, or the result, is read as it lies if
the letters of each part are side by side in it, in one order for all, and its last part is not the batch: neighbours in memory
then belong to one product. A letter of one operand alone may count as batch, too, if nothing is rearranged then: the other
operand is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pullback.ir.core.types import Extent

FEW = 32
"""Products of fewer rows or columns do not pay for packing an operand that they share."""


@dataclass(frozen=True)
class Layout:
    """The parts of the letters, and the words of the operands and of the result in the order that they are read and written."""

    batch: str
    rows: str
    columns: str
    summed: str
    words: tuple[str, str, str]

    def parts(self, position: int) -> list[str]:
        """The parts of one of the words, in its order."""
        found = [part for part in (self.batch, self.rows, self.columns, self.summed) if part and part in self.words[position]]
        return sorted(found, key=self.words[position].index)


def layout(left: str, right: str, out: str, extents: Mapping[str, Extent]) -> Layout:
    """The layout that rearranges the fewest arrays; rows are the letters of the left operand."""
    found: list[tuple[int, Layout]] = []
    common = set(left) & set(right)
    for batch, summed in _splits(left, right, out, extents):
        rows = "".join(k for k in out if k in left and k not in batch)
        columns = "".join(k for k in out if k in right and k not in batch)
        parts = (batch, rows, columns, summed)
        words = tuple(_word(word, parts, position) for position, word in enumerate((left, right, out)))
        moved = sum(new != old for new, old in zip(words, (left, right, out), strict=True))
        if moved and batch and not set(batch) <= common:
            continue
        found.append((moved, Layout(*parts, (words[0], words[1], words[2]))))
    return min(found, key=lambda pair: pair[0])[1]


def _splits(left: str, right: str, out: str, extents: Mapping[str, Extent]) -> Iterator[tuple[str, str]]:
    """What may be the batch and the summed letters, the simplest first."""
    common = "".join(k for k in out if k in left and k in right)
    orders = dict.fromkeys("".join(k for k in word if k not in out) for word in (left, right))
    yield from ((common, summed) for summed in orders)
    for word in () if common else (left, right):
        lone = "".join(k for k in out if k in word)
        for size in range(1, len(lone)):
            for first in range(len(lone) - size + 1):
                batch = lone[first : first + size]
                rest = [extents[k] for k in lone if k not in batch]
                if not all(isinstance(e, int) and e < FEW for e in rest):
                    yield from ((batch, summed) for summed in orders)


def _word(word: str, parts: tuple[str, str, str, str], position: int) -> str:
    """The letters of an operand, or of the result, in the order they are read or written: as they are, if that is possible."""
    batch, rows, columns, summed = ("".join(k for k in part if k in word) for part in parts)
    whole = [part for part in parts if part and part in word]
    last = [part for part in whole if word.endswith(part)]
    if sum(map(len, whole)) == len(word) and last != [batch]:
        return word
    return batch + (rows + columns if position == 2 else rows + summed if position == 0 else summed + columns)
