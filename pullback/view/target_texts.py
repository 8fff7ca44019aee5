"""The texts of a call's kernels in the languages of their targets, with the user's location of each line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pullback.codegen.cpu.located import line_numbers, with_line_numbers
from pullback.codegen.cuda.emit import emit_all
from pullback.codegen.cuda.source.function_text import comment_text
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc, Module
from pullback.ir.listing import Listing
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import located_parts_of

INDEXED = "#"
"""File name of locations that are indices."""
COMMENT = re.compile(rf"^(\s*)// {INDEXED}:(\d+)$")


def native_listings(module: Module) -> dict[str, Listing]:
    """Return the stages llvm and asm of a scheduled module."""
    llvm: list[tuple[str, Loc]] = []
    asm: list[tuple[str, Loc]] = []
    for text, locs in located_parts_of(module).items():
        lines = text.split("\n")
        llvm += zip(lines, locs, strict=True)
        index: dict[Loc, int] = {}
        numbers = [index.setdefault(loc, len(index) + 1) if loc else 0 for loc in locs]
        by_number = [NOWHERE, *index]
        assembly = default_engine().assembly(text)
        if index:
            numbers = line_numbers(assembly, default_engine().assembly(with_line_numbers(lines, numbers)))
        else:
            numbers = [0] * len(assembly.split("\n"))
        asm += zip(assembly.split("\n"), (by_number[n] for n in numbers), strict=True)
    return {"llvm": _listing(llvm), "asm": _listing(asm)}


def cuda_listing(module: Module) -> Listing:
    """Return the CUDA C of a module scheduled for a GPU, in which comments name the user's lines. Raises NotImplementedError."""
    locs: list[Loc] = []
    index: dict[Loc, int] = {}

    def indexed(block: Block) -> Block:
        return replace(block, instructions=tuple(map(with_index, block.instructions)))

    def with_index(i: Instruction) -> Instruction:
        loc = NOWHERE
        if i.loc:
            if i.loc not in index:
                index[i.loc] = len(locs)
                locs.append(i.loc)
            loc = Loc(INDEXED, index[i.loc])
        return replace(i, loc=loc, regions=tuple(map(indexed, i.regions)))

    kernels = [replace(f, body=indexed(f.body)) for f in module.functions if f.kind == "kernel"]
    return _with_comments(emit_all(kernels).rstrip("\n").split("\n"), locs)


def _with_comments(lines: Sequence[str], locs: Sequence[Loc]) -> Listing:
    """Return the listing of a text whose comments are indices of locations. A comment is about the lines below it, as far as
    the next comment, or the brace that begins or ends a block."""
    shown: list[tuple[str, Loc]] = []
    loc = NOWHERE
    for line in lines:
        comment = COMMENT.match(line)
        if comment is not None:
            loc = locs[int(comment[2])]
            line = f"{comment[1]}// {comment_text(loc)}"
        elif line.lstrip().startswith("}"):
            loc = NOWHERE
        shown.append((line, loc))
        if line.endswith("{"):
            loc = NOWHERE
    return _listing(shown)


def _listing(lines: Sequence[tuple[str, Loc]]) -> Listing:
    return Listing(lines=tuple(line for line, _ in lines), locs=tuple(loc for _, loc in lines))
