"""The loops of a kernel's assembly (x86-64, AT&T), and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LABEL = re.compile(r"^(\.L\w+|\w+):")
JUMP = re.compile(r"^\s+j\w+\s+(\.L\w+)$")
VECTOR = re.compile(r"%([xyz])mm\d+")


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The instructions from a label to the last jump back to it, none of which is in a loop within."""

    label: str
    lines: tuple[str, ...]

    @property
    def calls(self) -> int:
        return sum(line.lstrip().startswith("call") for line in self.lines)

    @property
    def spills(self) -> int:
        """Vectors stored to the stack and read from it."""
        return sum(bool(VECTOR.search(line)) and "(%rsp)" in line for line in self.lines)

    def vectors(self, width: str) -> int:
        """Instructions that compute or move vectors of the width: x, y or z."""
        return sum(f"%{width}mm" in line for line in self.lines)


def loops(text: str) -> Iterator[Loop]:
    """The innermost loops, in the order of the text."""
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    places = {result[1]: at for at, line in enumerate(lines) if (result := LABEL.match(line))}
    backward = {result[1]: at for at, line in enumerate(lines) if (result := JUMP.match(line)) and places.get(result[1], at) < at}
    spans = [(places[label], end, label) for label, end in backward.items()]
    for start, end, label in sorted(spans):
        if not any(start < other < end for other, _, _ in spans):
            body = [line for line in lines[start + 1 : end + 1] if line.startswith("\t") and not line.lstrip().startswith(".")]
            yield Loop(label=label, lines=tuple(body))
