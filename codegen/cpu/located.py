"""emit with locations: the LLVM text of a kernel or program, in which a comment ends each line that an instruction with a
location emits. Without the comments it is the text that ``emit`` and ``emit_program`` return, up to names that are hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pullback.codegen.cpu.llvm.kernel import Emitter
from pullback.codegen.cpu.llvm.program import ProgramWriter
from pullback.ir.core.structure import NOWHERE, Instruction, Loc

COMMENT = re.compile(r" ;@(\d+)")
HASHED = re.compile(r"\b[kp][0-9a-f]{24}(?![0-9a-f])")
"""A symbol that is named by a hash of its text."""
INSTRUCTION = re.compile(r"  (?=\S)(?!.*\[$)")
"""The last line of an instruction, which is indented by two spaces; the cases of a switch are indented by more."""


class Marks:
    """The locations in the comments, by their indices, and the writers that append the comments."""

    def __init__(self) -> None:
        self.locs: list[Loc] = []
        self._index: dict[Loc, int] = {}
        marks = self

        class MarkedEmitter(Emitter):
            loc = NOWHERE

            def instruction(self, i: Instruction) -> None:
                outer, self.loc = self.loc, i.loc or self.loc
                super().instruction(i)
                self.loc = outer

            def line(self, text: str) -> None:
                super().line(marks.marked(text, self.loc))

        class MarkedWriter(ProgramWriter):
            emitter = MarkedEmitter
            loc = NOWHERE

            def instruction(self, i: Instruction) -> None:
                outer, self.loc = self.loc, i.loc or self.loc
                super().instruction(i)
                self.loc = outer

            def line(self, text: str) -> None:
                super().line(marks.marked(text, self.loc))

        self.emitter, self.writer = MarkedEmitter, MarkedWriter

    def marked(self, text: str, loc: Loc) -> str:
        """Return lines with the comment of a location."""
        if not loc:
            return text
        index = self._index.get(loc)
        if index is None:
            index = self._index[loc] = len(self.locs)
            self.locs.append(loc)
        return "\n".join(f"{line} ;@{index}" for line in text.split("\n"))

    def locs_of(self, text: str, marked: str) -> list[Loc]:
        """Return the location of each line of a text. ``marked``: the same text with comments; if it is another, since a
        choice depends on the length of a text, no line has a location."""
        pairs = list(zip(text.split("\n"), marked.split("\n")))
        if text.count("\n") != marked.count("\n") or not all(_same(plain, line) for plain, line in pairs):
            return [NOWHERE] * len(text.split("\n"))
        return [self._loc(line) for _, line in pairs]

    def _loc(self, line: str) -> Loc:
        comment = COMMENT.search(line)
        return NOWHERE if comment is None else self.locs[int(comment[1])]


def _same(plain: str, marked: str) -> bool:
    bare = COMMENT.sub("", marked)
    return plain == bare or HASHED.sub("", plain) == HASHED.sub("", bare)


def with_line_numbers(lines: Sequence[str], numbers: Sequence[int]) -> str:
    """Return LLVM text with debug information that gives each instruction a line number; 0 means none.

    The code that LLVM generates is the same; its assembly has a directive ``.loc 1 NUMBER`` before the code of a line.
    """
    return "\n".join(_debug_lines(lines, numbers))


def _debug_lines(lines: Sequence[str], numbers: Sequence[int]) -> Iterator[str]:
    """Yield the lines of ``with_line_numbers``. The numbers of metadata begin above those of the text itself."""
    first = 1 + max((int(m) for line in lines for m in re.findall(r"!(\d+)", line)), default=0)
    unit, file, kind, none = (f"!{first + k}" for k in range(4))
    locations: dict[tuple[str, int], str] = {}
    metadata = [
        f'{unit} = distinct !DICompileUnit(language: DW_LANG_C, file: {file}, emissionKind: LineTablesOnly)',
        f'{file} = !DIFile(filename: "lines", directory: "")',
        f"{kind} = !DISubroutineType(types: {none})",
        f"{none} = !{{}}",
        f'!{first + 4} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f"!llvm.dbg.cu = !{{{unit}}}",
        f"!llvm.module.flags = !{{!{first + 4}}}",
    ]
    count, scope = first + 5, ""
    for line, line_number in zip(lines, numbers, strict=True):
        if line.startswith("define ") and line.endswith("{"):
            scope = f"!{count}"
            count += 1
            metadata.append(
                f'{scope} = distinct !DISubprogram(name: "f{count}", scope: {file}, file: {file}, line: 1, type: {kind}, '
                f"spFlags: DISPFlagDefinition, unit: {unit})"
            )
            yield f"{line[:-1]}!dbg {scope} {{"
        elif scope and INSTRUCTION.match(line):
            location = locations.get((scope, line_number))
            if location is None:
                location = locations[scope, line_number] = f"!{count}"
                count += 1
                metadata.append(f"{location} = !DILocation(line: {line_number}, scope: {scope})")
            yield f"{line}, !dbg {location}"
        else:
            yield line
            scope = "" if line == "}" else scope
    yield from metadata
    yield ""


LINE_DIRECTIVE = re.compile(r"^\t\.loc\t\d+ (\d+)")
OF_DEBUGGING = re.compile(r"^(?:\t\.(?:loc|file)\t|\.L(?:tmp|func_begin)\d+:|\t\.p2align\t.*|\t\.cfi_)|^\.Lfunc_end")


def line_numbers(assembly: str, debugged: str) -> list[int]:
    """Return the line number of each line of an assembly text. ``debugged``: the assembly of the same text with line numbers;
    if its code is another, all numbers are 0."""
    numbers: list[int] = []
    code: list[str] = []
    line_number = 0
    for line in debugged.partition("\t.section\t.debug")[0].split("\n"):
        directive = LINE_DIRECTIVE.match(line)
        if directive is not None:
            line_number = int(directive[1])
        elif line.endswith(":") and not line.startswith((".", "\t")):
            line_number = 0
        if line.startswith("\t") and not OF_DEBUGGING.match(line) and not line.startswith("\t."):
            code.append(line.partition("#")[0].rstrip())
            numbers.append(line_number)
    shown = assembly.split("\n")
    positions = [k for k, line in enumerate(shown) if line.startswith("\t") and not line.startswith("\t.")]
    result = [0] * len(shown)
    if [shown[k].partition("#")[0].rstrip() for k in positions] == code:
        for k, line_number in zip(positions, numbers, strict=True):
            result[k] = line_number
    return result
