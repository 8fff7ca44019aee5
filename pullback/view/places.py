"""The places of a page: the user's lines that it refers to, each once, and the sources that they are in."""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import field

from pullback.inspection.provenance import is_forward, unmarked
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Loc
from pullback.ir.text import short_file
from pullback.view.contents import NO_INDEX, Place, Source

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(kw_only=True)
class Places:
    """Collects places and sources. The first file of a located line is the first source."""

    places: list[Place] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    _by_loc: dict[Loc, int] = field(default_factory=dict)
    _by_file: dict[str, int] = field(default_factory=dict)
    _last_lines: dict[tuple[int, int], int] = field(default_factory=dict)
    _loops: dict[int, list[int]] = field(default_factory=dict)

    def of(self, loc: Loc) -> int:
        """Return the index of the place of a location; ``NO_INDEX`` if it is in no file."""
        index = self._by_loc.get(loc)
        if index is None:
            users = unmarked(loc)
            index = self._by_loc.get(users) if users else NO_INDEX
            if index is None:
                index = len(self.places)
                part = "forward" if is_forward(users) else "backward"
                self.places.append(Place(source=self.file(users.file), line=users.line, note=users.note, part=part))  # type: ignore[arg-type]
                self._by_loc[users] = index
            self._by_loc[loc] = index
        return index

    def all_of(self, locs: Iterable[Loc]) -> tuple[int, ...]:
        """Return the different places of locations, in order."""
        return tuple(index for index in dict.fromkeys(map(self.of, locs)) if index != NO_INDEX)

    def file(self, file: str) -> int:
        """Return the index of a source."""
        if file not in self._by_file:
            index = self._by_file[file] = len(self.sources)
            lines = tuple(line.rstrip("\r\n") for line in linecache.getlines(file))
            functions = []
            for node in _parsed(lines):
                if isinstance(node, Definition):
                    name = "lambda" if isinstance(node, ast.Lambda) else node.name
                    functions.append((name, node.lineno, node.end_lineno or node.lineno))
                elif isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try):
                    self._last_lines[index, node.lineno] = node.end_lineno or node.lineno
                    if isinstance(node, ast.For | ast.While):
                        self._loops.setdefault(index, []).append(node.lineno)
            ordered = tuple(sorted(functions, key=lambda f: (f[1], -f[2])))
            self.sources.append(Source(name=short_file(file), path=file, lines=lines, functions=ordered))
        return self._by_file[file]

    def loops_of_traced_functions(self) -> Iterator[Loc]:
        """Yield the locations of the loops in functions that have a place."""
        for index, source in enumerate(self.sources):
            lines = {p.line for p in self.places if p.source == index}
            spans = [(first, last) for _, first, last in source.functions if any(first <= line <= last for line in lines)]
            for line in sorted(self._loops.get(index, ())):
                if any(first <= line <= last for first, last in spans):
                    yield Loc(source.path, line)

    def text_of(self, at: int) -> str:
        """Return the text of the line of a place, without the blanks around it; empty if the source is not at hand."""
        p = self.places[at]
        lines = self.sources[p.source].lines
        return lines[p.line - 1].strip() if p.line <= len(lines) else ""

    def last_line(self, at: int) -> int:
        """Return the last line of the statement that begins at a place."""
        p = self.places[at]
        return self._last_lines.get((p.source, p.line), p.line)


def _parsed(lines: tuple[str, ...]) -> Iterator[ast.AST]:
    """Yield the nodes of a source; none of a text that is no Python, as a cell with magics."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield from ast.walk(ast.parse("\n".join(lines)))
    except (SyntaxError, ValueError, RecursionError):
        return
