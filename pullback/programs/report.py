"""The base class and text helpers of reports, which print as text of at most 100 columns and in notebooks."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import Loc
from pullback.ir.text import print_file

if TYPE_CHECKING:
    import html
else:
    html = later("html")  # it contains a table of two thousand names

WIDTH = 100
"""Largest number of columns of a report."""
GAP = "  "
HARD_SPACE = "\u00a0"
MOST_OF_A_CELL = 36
"""Largest number of characters in a table cell, except in the last column."""


class Report:
    """Hold a report on one call; ``str`` is its text, as the command line prints it.

    Attributes
    ----------
    headline : str
        The first line of the text.

    See Also
    --------
    Cost : Work and memory traffic.
    Explanation : Why a call is compiled.
    Memory : Memory of a call.
    Profile : Time of a call.
    Residuals : What a gradient keeps.
    Stages : The text of each stage.

    Examples
    --------
    >>> report = pb.jit(lambda x: x + 1).memory(np.ones(1000))
    >>> isinstance(report, pb.inspection.Report), str(report).startswith(report.headline)
    (True, True)
    """

    __slots__ = ()

    @property
    def headline(self) -> str:
        """The first line of the text."""
        return str(self).partition("\n")[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def paragraph(text: str, indent: str = GAP) -> list[str]:
    """Wrap a text to lines of at most ``WIDTH`` columns; the second and later ones are indented further."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + GAP, break_on_hyphens=False) or [indent]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Format rows under a header, indented. Columns named in ``right`` are right-aligned numbers; the last column wraps, not
    at hard spaces."""
    cells_by_row = [[*map(_cell, row[:-1]), row[-1]] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells_by_row)][:-1]
    longest = max(len(word) for row in cells_by_row for word in row[-1].split(" "))
    lines = []
    for row in cells_by_row:
        cells = [text.rjust(w) if name in right else text.ljust(w) for text, w, name in zip(row, widths, header)]
        start = GAP + "".join(cell + GAP for cell in cells)
        if len(start) + longest > WIDTH:
            lines.append(start.rstrip())
            start = GAP * 4
        first, *more = textwrap.wrap(row[-1], WIDTH - len(start), break_on_hyphens=False) or [""]
        lines.append((start + first).rstrip())
        lines += [" " * len(start) + line for line in more]
    return [line.replace(HARD_SPACE, " ") for line in lines if line]


def _cell(text: str) -> str:
    return text if len(text) <= MOST_OF_A_CELL else f"{text[: MOST_OF_A_CELL - 3]}..."


def counted(count: int, word: str, words: str = "") -> str:
    """Return a count with its noun: "1 kernel", "2 kernels"; ``words`` is a plural without "s"."""
    return f"{count:,} {word if count == 1 else words or f'{word}s'}"


def location(loc: Loc) -> str:
    """Return the user's file and line; empty if unknown."""
    return f"{print_file(loc.file)}:{loc.line}" if loc else ""


def places(locs: Iterable[Loc]) -> str:
    """Return the lines of some locations as text, by file, with consecutive lines as a range: "model.py:3-5, 9"."""
    by_file: dict[str, set[int]] = {}
    for loc in locs:
        if loc:
            by_file.setdefault(print_file(loc.file), set()).add(loc.line)
    return ", ".join(f"{file}:{_runs(sorted(lines))}" for file, lines in by_file.items())


def _runs(lines: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)
