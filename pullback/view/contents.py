"""The contents of the page: what it shows, as values that become one JSON object.

A *place* is a line of the user's with a note, as "pullback(mul)"; lists of places are indices into ``Contents.places``, and so is
``at``. A *node* is a step of the program: a kernel, or a loop or branch with the nodes inside it; lists of nodes are indices into
``Contents.nodes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from pullback.ir.core.records import dataclass

Part = Literal["forward", "backward"]
NodeKind = Literal["kernel", "loop", "branch", "python"]
NO_INDEX = -1
"""The index of a place or node that there is none of."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of the user's. ``functions``: each function's name with its first and last line, outer ones first."""

    name: str
    path: str
    lines: tuple[str, ...]
    functions: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a file, by the file's index in ``Contents.sources``, counted from 1. ``part``: of a gradient."""

    source: int
    line: int
    note: str = ""
    part: Part = "forward"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The text of a stage. ``places``: for each line its place, or ``NO_INDEX``. ``folds``: the first and last line of each
    block, counted from 0. ``omitted``: the number of lines left out at the end, for the size of the page. ``problem``: why
    there is no text."""

    name: str
    lines: tuple[str, ...]
    places: tuple[int, ...]
    folds: tuple[tuple[int, int], ...] = ()
    omitted: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A step of the program. ``parent``: the loop or branch around it.

    ``flops``, ``functions``, ``bytes_read``, ``bytes_written`` and ``launches``: as in the cost report, of all launches;
    ``is_exact``: whether they are known. ``seconds``, ``share`` and ``limit``: as in the profile; ``seconds`` is None if it was
    not timed. ``loops``: the number of loops of the scheduled kernel by how they run ("threads", "vector", "serial").
    """

    name: str
    kind: NodeKind
    ops: tuple[str, ...]
    places: tuple[int, ...]
    parent: int = NO_INDEX
    flops: int = 0
    functions: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    launches: int = 1
    is_exact: bool = True
    seconds: float | None = None
    share: float = 0.0
    limit: str = ""
    loops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A value that the node ``target`` reads and ``source`` computes. ``flops``: those of ``source``. ``reason``: why the two are
    not fused."""

    source: int
    target: int
    value: str
    type: str
    bytes: int
    flops: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """A buffer: the fields of the memory report. ``kind``: the part of a temporary, or the role of another buffer."""

    name: str
    type: str
    bytes: int
    kind: str
    op: str
    at: int
    offset: int | None = None
    first: int | None = None
    last: int | None = None
    within: str = ""


@dataclass(frozen=True, kw_only=True)
class MemoryChart:
    """The memory of a call: the figures and buffers of the memory report. ``steps``: the node of each launch."""

    headline: str
    arena_bytes: int
    unshared_bytes: int
    peak_bytes: int
    allocated_bytes: int
    steps: tuple[int, ...]
    buffers: tuple[MemoryRow, ...]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The time that a place takes in a node; ``at`` and ``node`` are ``NO_INDEX`` for time outside of them, which ``name``
    describes."""

    seconds: float
    at: int = NO_INDEX
    node: int = NO_INDEX
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class TimeChart:
    """The time of a call. The frames add up to ``seconds``. ``ordinary_seconds``: of a call without reads of the clock.
    ``note``: how the time was measured, or why it was not."""

    headline: str = ""
    seconds: float = 0.0
    ordinary_seconds: float | None = None
    frames: tuple[Frame, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ResidualRow:
    """A value that the backward part reads. ``kept``: "memory", "kernel", "recomputed" or "input"; ``readers``: places."""

    name: str
    type: str
    bytes: int
    op: str
    at: int
    kept: str
    why: str
    readers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GradientTable:
    """What the gradient keeps: the residuals report, and the inputs that the backward part reads."""

    headline: str
    rows: tuple[ResidualRow, ...]
    algorithm: str = ""


@dataclass(frozen=True, kw_only=True)
class StatementRow:
    """A branch, loop or check, how it is compiled, and the nodes that run it or its body, up to the line ``last``."""

    kind: str
    text: str
    how: str
    at: int
    last: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ErrorText:
    """An error that ended the trace or the compilation, with its place. ``text`` is its message; ``lines``: the message without
    the source line, as it is shown below that line."""

    kind: str
    text: str
    lines: tuple[str, ...]
    at: int


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that the page shows. ``error``: why there is no program; all but the sources is then empty.

    ``operations`` is the number of operations of the trace. ``first``: the source line that is shown first. ``not_rolled``: why
    no statement is compiled as such, if none is.
    """

    title: str
    device: str
    arguments: str
    operations: int = 0
    first: int = NO_INDEX
    sources: tuple[Source, ...] = ()
    places: tuple[Place, ...] = ()
    stages: tuple[Stage, ...] = ()
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    memory: MemoryChart | None = None
    time: TimeChart = TimeChart()
    gradient: GradientTable | None = None
    statements: tuple[StatementRow, ...] = ()
    not_rolled: str = ""
    error: ErrorText | None = None

    def stage(self, name: str) -> Stage:
        """Return the stage of that name. Raises ValueError, which lists the stages."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = ", ".join(stage.name for stage in self.stages)
        raise ValueError(f"there is no stage {name!r} of this call; there are {names or 'none, as it was not compiled'}")
