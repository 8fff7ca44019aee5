"""Gather the contents of a page from the reports on a call."""

from __future__ import annotations

from collections.abc import Iterator

from pullback.inspection.explain import ControlFlow, line_of, statements_of
from pullback.inspection.memory import memory
from pullback.inspection.profile import profile
from pullback.inspection.provenance import Anatomy, dissect
from pullback.inspection.residuals import residuals
from pullback.ir.core.structure import Instruction, Loc, walk
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.control.regions import Transform
from pullback.ir.passes.transforms.expand import GradientError
from pullback.programs.call import Call
from pullback.tracer import TraceError
from pullback.tracer.user_code.errors import error_loc
from pullback.view.charts import gradient_table, memory_chart, time_chart
from pullback.view.contents import NO_INDEX, Contents, ErrorText, StatementRow, TimeChart
from pullback.view.graph import Graph, graph_of, with_times
from pullback.view.places import Places
from pullback.view.stage_texts import stages_of

EFFECTS = "each call has effects, so none was timed; f.profile, or pullback profile, makes and times calls"
"""Why a call with effects has no times."""
IN_PYTHON = "unrolled: Python ran it while the function was traced, if it was reached"
"""How a loop is compiled where no statement is compiled as such."""


def contents_of(call: Call, times: bool = True) -> Contents:
    """Return all that the page shows of a call. ``times``: whether to make and time calls, unless they have effects.

    A call that cannot be traced or compiled, or whose function raises an error while it is traced, has contents with the error.
    """
    places = Places()
    arguments = ", ".join(map(str, call.arguments))
    try:
        call.trace  # noqa: B018
    except Exception as error:
        return _of_error(call.title, arguments, error, places)
    try:
        for i in walk(call.trace.function.body):
            if not isinstance(i.op, Transform):
                places.of(i.loc)
        anatomy = dissect(call)
        stages, scheduled = stages_of(call, anatomy, places)
    except (TraceError, GradientError) as error:
        return _of_error(call.title, arguments, error, places)
    graph = Graph() if anatomy is None else graph_of(anatomy, scheduled, places)
    chart, graph = _timed(call, anatomy, graph, places) if times else (TimeChart(note="calls were not timed"), graph)
    statements = tuple(_statements(call, anatomy, graph, places))
    return Contents(
        title=call.title, device=call.device, arguments=arguments,
        operations=sum(1 for _ in walk(call.trace.function.body)), first=_first(places), stages=stages,
        nodes=tuple(graph.nodes), edges=tuple(graph.edges), memory=memory_chart(memory(call), graph, places), time=chart,
        gradient=gradient_table(residuals(call), places), statements=statements, not_rolled=call.trace.not_rolled,
        sources=tuple(places.sources), places=tuple(places.places),
    )  # fmt: skip


def _first(places: Places) -> int:
    """Return the first place of the first source."""
    ordered = sorted((p.line, k) for k, p in enumerate(places.places) if p.source == 0)
    return ordered[0][1] if ordered else -1


def _of_error(title: str, arguments: str, error: Exception, places: Places) -> Contents:
    """Return the contents of a call that has no program. Raises an error that was raised at no line of the user's."""
    text = f"{type(error).__name__}: {error}"
    lines = tuple(text.splitlines())
    match error:
        case TraceError():
            loc, text = Loc(error.file, error.line), str(error)
            lines = tuple(line for line in (error.message.partition("; ")[0], *error.origins, error.hint) if line)
        case GradientError():
            loc = error.loc
        case _:
            loc = error_loc(error)
    if not loc:
        raise error
    at = places.of(loc)
    return Contents(
        title=title, device="", arguments=arguments, first=at, sources=tuple(places.sources), places=tuple(places.places),
        error=ErrorText(kind=type(error).__name__, text=text, lines=lines, at=at),
    )  # fmt: skip


def _timed(call: Call, anatomy: Anatomy | None, graph: Graph, places: Places) -> tuple[TimeChart, Graph]:
    """Return the chart of the time of a call, and the graph with times; what the call raises is the chart's note."""
    steps = walk(anatomy.program.body) if anatomy is not None else ()
    if call.trace.has_effects or any(isinstance(i.op, Host) for i in steps):
        return TimeChart(note=EFFECTS), graph
    try:
        report = profile(call)
    except Exception as error:
        return TimeChart(note=f"no call was timed: {type(error).__name__}: {error}"), graph
    return time_chart(report, graph, places), with_times(graph, report)


def _statements(call: Call, anatomy: Anatomy | None, graph: Graph, places: Places) -> Iterator[StatementRow]:
    """Yield the branches, loops and checks with the nodes that run them, then the loops and branches of the program that are
    none of Python's, as that of ``pb.scan``. If no statement is compiled as such, Python ran all of them, and the loops of the
    functions that were traced are unrolled."""
    covered: set[int] = set()
    loops = places.loops_of_traced_functions() if not call.trace.statements else ()
    in_python = [ControlFlow(kind="loop", text=line_of(loc), how=IN_PYTHON, loc=loc) for loc in loops]
    for statement in statements_of(call.trace) or in_python:
        at = places.of(statement.loc)
        last = places.last_line(at) if at != -1 else 0
        nodes = tuple(_nodes_of(statement, last, anatomy, graph, places))
        covered.update(nodes)
        yield StatementRow(kind=statement.kind, text=statement.text, how=statement.how, at=at, last=last, nodes=nodes)
    others: dict[tuple[str, int, int], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.kind in ("loop", "branch") and index not in covered and node.parent == NO_INDEX and node.places:
            first = places.places[node.places[0]]
            others.setdefault((node.kind, first.source, first.line), []).append(index)
    for (kind, *_), nodes_at in others.items():
        node = graph.nodes[nodes_at[0]]
        at = node.places[0]
        how = f"rolled: {node.name} of the program" if kind == "loop" else "one side runs"
        text, last = places.text_of(at) or node.name, places.last_line(at)
        yield StatementRow(kind=kind, text=text, how=how, at=at, last=last, nodes=tuple(nodes_at))


def _nodes_of(
    statement: ControlFlow, last: int, anatomy: Anatomy | None, graph: Graph, places: Places
) -> Iterator[int]:  # fmt: skip
    """Yield the loop or branch of the program that a statement became, otherwise the kernels with operations of its body."""
    if anatomy is None:
        return
    at = (statement.loc.file, statement.loc.line)
    own = [k for i, k in graph.of_source.items() if isinstance(i.op, Loop | Switch) and _line(anatomy, i) == at]
    if own:
        yield from own
        return
    for k, node in enumerate(graph.nodes):
        if node.kind == "kernel" and any(_is_within(p, statement.loc, last, places) for p in node.places):
            yield k


def _line(anatomy: Anatomy, i: Instruction) -> tuple[str, int]:
    loc = anatomy.loc(i)
    return loc.file, loc.line


def _is_within(at: int, loc: Loc, last: int, places: Places) -> bool:
    p = places.places[at]
    return places.sources[p.source].path == loc.file and loc.line <= p.line <= last
