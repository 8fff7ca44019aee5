"""The stages of a page: their texts, the user's place of each line, and the blocks that fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pullback.inspection.program import program_listing
from pullback.inspection.provenance import Anatomy
from pullback.ir.core.structure import Module
from pullback.ir.listing import Listing, list_module
from pullback.ir.text import Notes
from pullback.programs.call import Call
from pullback.programs.pipeline import observe_stages, target_of
from pullback.tracer import TraceError
from pullback.view.contents import Stage
from pullback.view.places import Places
from pullback.view.target_texts import cuda_listing, native_listings

SHORTEST_FOLD = 3
"""Least number of lines of a block that folds."""
MOST_LINES = 150_000
"""Largest number of lines of a stage: the text of an assembly listing of this length compresses to about half a megabyte."""


def stages_of(call: Call, anatomy: Anatomy | None, places: Places) -> tuple[tuple[Stage, ...], Module]:
    """Return the stages of a call, and its scheduled module. A call on the CPU has CUDA C as well: what its function would be
    on a GPU."""
    listings: dict[str, Listing] = {}

    def show(stage: str, module: Module, notes: Notes) -> None:
        listings[stage] = list_module(module, notes)

    target = target_of(call.device)
    module = observe_stages(call.trace, call.leaves, call.device, call.over, show)
    if target == "cpu":
        if anatomy is not None:
            listings["program"] = program_listing(anatomy)
        listings |= native_listings(module)
    stages = [stage_of(name, listing, places) for name, listing in listings.items()]
    stages.append(_cuda_stage(call, module, places))
    return tuple(stages), module


def _cuda_stage(call: Call, module: Module, places: Places) -> Stage:
    try:
        if target_of(call.device) == "cpu":
            module = observe_stages(call.trace, call.leaves, "cuda", (), lambda *shown: None)
        return stage_of("cuda", cuda_listing(module), places)
    except (TraceError, NotImplementedError) as error:
        return Stage(name="cuda", lines=(), places=(), problem=str(error))


def stage_of(name: str, listing: Listing, places: Places) -> Stage:
    """Return the stage of a listing."""
    lines, locs = listing.lines[:MOST_LINES], listing.locs[:MOST_LINES]
    return Stage(
        name=name, lines=lines, places=tuple(map(places.of, locs)), folds=tuple(folds_of(lines)),
        omitted=len(listing.lines) - len(lines),
    )  # fmt: skip


def folds_of(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each block: from a line that ends with a brace to the one that begins with the other,
    or, in assembly, from the label of a function to its size."""
    opened: list[int] = []
    folds: list[tuple[int, int]] = []
    label = 0
    for position, line in enumerate(lines):
        bare = line.strip()
        if bare.startswith("}") and opened:
            folds.append((opened.pop(), position))
        if bare.endswith("{"):
            opened.append(position)
        elif bare.endswith(":") and not line.startswith((" ", "\t", ".")):
            label = position
        elif line.startswith("\t.size"):
            folds.append((label, position))
    yield from sorted((first, last) for first, last in folds if last - first >= SHORTEST_FOLD - 1)


