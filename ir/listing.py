"""Listings: texts by lines, each with the location in the user's source from which it comes."""

from __future__ import annotations

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Instruction, Loc, Module
from pullback.ir.text import HEADER, Notes, Printer


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A text by lines. ``locs``: the location of each line, ``NOWHERE`` for one that comes from no line of the user's."""

    lines: tuple[str, ...]
    locs: tuple[Loc, ...]

    @property
    def text(self) -> str:
        """The text, as a file has it."""
        return "".join(f"{line}\n" for line in self.lines)


def list_module(module: Module, notes: Notes | None = None) -> Listing:
    """Return the listing of a module, whose text is that of ``print_module`` without locations."""
    lines, locs = [HEADER], [NOWHERE]
    for function in module.functions:
        printer = _Lister(notes)
        text = printer.function(function).split("\n")
        lines += ["", *text]
        locs += [NOWHERE, *(printer.locs.get(k, NOWHERE) for k in range(len(text)))]
    return Listing(lines=tuple(lines), locs=tuple(locs))


class _Lister(Printer):
    """A printer that notes the location of each line. The lines of a region that belong to none of its instructions, as the
    last one, have the location of the instruction that has the region."""

    def __init__(self, notes: Notes | None) -> None:
        super().__init__(notes=notes)
        self.locs: dict[int, Loc] = {}

    def instruction(self, instruction: Instruction, depth: int) -> None:
        start = len(self.lines)
        super().instruction(instruction, depth)
        for position in range(start, len(self.lines)):
            self.locs.setdefault(position, instruction.loc)
