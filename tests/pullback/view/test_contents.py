"""What the page shows is what the reports say: stages, kernels, memory, time, residuals, loops, and errors at their lines."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs.pipeline import SHARED_STAGES, stages
from pullback.view.contents import Contents, Place
from tests.pullback.view import programs

LOCATED = re.compile(r"  @([\w.]+):(\d+)( \S+)?$")
NETWORK = pb.value_and_grad(programs.network, argnums=(0, 1))
SIMULATE = pb.value_and_grad(programs.simulate)
RATES = np.linspace(0.1, 0.2, 300)


@pytest.fixture(scope="module")
def network() -> Contents:
    return NETWORK.view(*programs.network_example()).contents


@pytest.fixture(scope="module")
def simulate() -> Contents:
    return SIMULATE.view(RATES, 0.5).contents


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return first + next(k for k, line in enumerate(lines) if text in line)


def lines_of(contents: Contents, places: Any) -> set[int]:
    return {contents.places[p].line for p in places if p >= 0}


@pytest.mark.parametrize(("name", "function", "arguments"), [
    ("network", NETWORK, programs.network_example()), ("simulate", SIMULATE, (RATES, 0.5)),
])  # fmt: skip
def test_texts_are_those_of_the_stages(name: str, function: Any, arguments: Any, request: pytest.FixtureRequest) -> None:
    contents = request.getfixturevalue(name)
    texts = function.stages(*arguments)
    assert [s.name for s in contents.stages] == [*texts, "cuda"]
    for stage in contents.stages[:-1]:
        assert "\n".join(stage.lines).rstrip("\n") == texts[stage.name].rstrip("\n"), stage.name
        assert len(stage.lines) == len(stage.places) and not stage.omitted


def test_a_call_on_the_cpu_has_cuda_c(network: Contents) -> None:
    call = NETWORK.examine(programs.network_example(), {})
    assert "\n".join(network.stage("cuda").lines) == stages(call.trace, call.leaves, "cuda")["cuda"].rstrip("\n")


def test_places_are_the_locations_of_the_lines(network: Contents) -> None:
    call = NETWORK.examine(programs.network_example(), {})
    texts = stages(call.trace, call.leaves, locations=True)
    for name in SHARED_STAGES:
        count = 0
        for text, at in zip(texts[name].rstrip("\n").split("\n"), network.stage(name).places, strict=True):
            match = LOCATED.search(text)
            if match is not None and match[1] == "programs.py":
                at = network.places[at]
                assert (network.sources[at.source].name, at.line, at.note) == (match[1], int(match[2]), (match[3] or "").strip())
                count += 1
        assert count >= 10


@pytest.mark.parametrize("name", ["llvm", "asm", "cuda"])
def test_code_of_the_target_is_linked(network: Contents, simulate: Contents, name: str) -> None:
    """To lines that have operations, and all that have work in a kernel of generated code."""
    for contents, needed in ((network, {"np.tanh", "np.exp"}), (simulate, {"rates[i]", "total +="})):
        function = programs.network if contents is network else programs.simulate
        linked = lines_of(contents, contents.stage(name).places)
        assert linked <= lines_of(contents, contents.stage("trace").places)
        assert linked >= {line_of(function, text) for text in needed}


def test_machine_code_of_a_function_call_is_linked_to_its_line(network: Contents) -> None:
    """The line of a subtraction alone has vector subtractions and no table of ``exp``."""
    asm = network.stage("asm")
    line = line_of(programs.network, "np.max")
    own = [text for text, p in zip(asm.lines, asm.places, strict=True) if p >= 0 and network.places[p].line == line]
    assert any("max" in text or "sub" in text for text in own)


def test_work_of_the_nodes_is_that_of_the_cost_report(network: Contents, simulate: Contents) -> None:
    for contents, report in ((network, NETWORK.cost(*programs.network_example())), (simulate, SIMULATE.cost(RATES, 0.5))):
        kernels = [n for n in contents.nodes if n.kind == "kernel"]
        total = report.total
        assert sum(n.flops for n in kernels) == total.flops and sum(n.functions for n in kernels) == total.functions
        assert sum(n.bytes_read for n in kernels) == total.bytes_read
        assert sum(n.bytes_written for n in kernels) == total.bytes_written
        assert sum(n.launches for n in kernels) == total.launches


def test_work_by_line_is_all_work() -> None:
    """Besides that of the sums of cotangents in a loop, which come from no line."""
    report = NETWORK.cost(*programs.network_example())
    assert sum(line.flops for k in report.kernels for line in k.by_line) == report.total.flops
    assert sum(line.functions for k in report.kernels for line in k.by_line) == report.total.functions
    report = SIMULATE.cost(RATES, 0.5)
    work = sum(line.flops for k in report.kernels for line in k.by_line)
    assert report.total.flops - len(RATES) <= work <= report.total.flops


def test_reasons_on_the_edges_are_those_of_the_stage_fuse(network: Contents) -> None:
    notes = re.findall(r"^ *# %(\w+): (.*)$", "\n".join(network.stage("fuse").lines), re.MULTILINE)
    assert notes and sorted(notes) == sorted((e.value, e.reason) for e in network.edges)
    for edge in network.edges:
        assert edge.source < edge.target and edge.flops == network.nodes[edge.source].flops
        dtype, extents = edge.type.rstrip("]").split("[")
        assert edge.bytes == np.prod([int(n) for n in extents.split(",") if n], dtype=int) * int(dtype[1:]) // 8


def test_a_loop_is_a_node_with_nodes_inside(simulate: Contents) -> None:
    loops = [k for k, n in enumerate(simulate.nodes) if n.kind == "loop"]
    line = line_of(programs.simulate, "for i")
    assert len(loops) == 2 and all(line in lines_of(simulate, simulate.nodes[k].places) for k in loops)
    for loop in loops:
        inside = [n for n in simulate.nodes if n.parent == loop]
        assert inside and simulate.nodes[loop].flops == sum(n.flops for n in inside)
        assert simulate.nodes[loop].launches == len(RATES)
    for edge in simulate.edges:
        assert simulate.nodes[edge.source].parent == simulate.nodes[edge.target].parent
        assert "loop" in edge.reason


def test_loops_of_kernels(network: Contents) -> None:
    module = "\n".join(network.stage("schedule").lines)
    for node in network.nodes:
        text = re.search(rf"^kernel {node.name}\(.*?^}}$", module, re.DOTALL | re.MULTILINE)
        assert text is not None
        assert node.loops.get("vector", 0) == len(re.findall(r"\bfor .*\{.*map=vector", text[0]))


def test_memory_is_that_of_the_report(network: Contents) -> None:
    report, chart = NETWORK.memory(*programs.network_example()), network.memory
    assert chart is not None and (chart.arena_bytes, chart.peak_bytes) == (report.arena_bytes, report.peak_bytes)
    for row, buffer in zip(chart.buffers, (*report.temporaries, *report.results, *report.inputs), strict=True):
        assert (row.name, row.bytes, row.offset, row.first, row.last) == (
            buffer.name, buffer.bytes, buffer.offset, buffer.first, buffer.last,
        )  # fmt: skip
        assert row.kind == (buffer.part or buffer.role)
        assert not buffer.loc or network.places[row.at].line == buffer.loc.line
    assert len(chart.steps) == len(NETWORK.cost(*programs.network_example()).kernels)


def test_times_add_up(network: Contents, simulate: Contents) -> None:
    for contents in (network, simulate):
        time = contents.time
        assert time.seconds > 0 and sum(f.seconds for f in time.frames) == pytest.approx(time.seconds)
        in_kernels = sum(f.seconds for f in time.frames if f.node >= 0)
        assert sum(n.seconds or 0.0 for n in contents.nodes if n.kind == "kernel") == pytest.approx(in_kernels)
        parts = {contents.places[f.at].part for f in time.frames if f.at >= 0}
        assert parts == {"forward", "backward"}


def test_a_kernel_of_several_lines_has_the_time_of_each(network: Contents) -> None:
    """In proportion to its work: the line with ``exp`` and ``log`` takes more of the softmax than the others."""
    (softmax,) = (k for k, n in enumerate(network.nodes) if "exp" in n.ops)
    times: dict[int, float] = {}
    for frame in network.time.frames:
        if frame.node == softmax:
            line = network.places[frame.at].line
            times[line] = times.get(line, 0.0) + frame.seconds
    assert len(times) >= 3 and max(times, key=lambda line: times[line]) == line_of(programs.network, "np.exp")


def test_the_gradient_keeps_what_the_report_says(network: Contents) -> None:
    report, table = NETWORK.residuals(*programs.network_example()), network.gradient
    assert table is not None and table.headline == report.headline
    rows = {(r.name, r.bytes, r.kept, r.why) for r in table.rows if r.kept != "input"}
    assert rows == {(r.name, r.bytes, r.kept, r.why) for r in report.residuals} and len(rows) == len(report.residuals)
    assert {r.name for r in table.rows if r.kept == "input"} == {i.name for i in report.inputs}
    assert all(network.places[p].part == "backward" for r in table.rows for p in r.readers)
    assert pb.jit(programs.network).view(*programs.network_example()).contents.gradient is None


def test_loops_and_branches_are_those_of_explain(simulate: Contents) -> None:
    statements = SIMULATE.explain(RATES, 0.5).statements
    assert [(s.kind, s.text, s.how) for s in simulate.statements] == [(s.kind, s.text, s.how) for s in statements]
    rolled, branch, unrolled = simulate.statements
    assert [simulate.nodes[k].kind for k in rolled.nodes] == ["loop", "loop"] and rolled.how == "rolled: 300 iterations"
    assert rolled.last == line_of(programs.simulate, "total +=")
    assert branch.nodes and all(simulate.nodes[simulate.nodes[k].parent].kind == "loop" for k in branch.nodes)
    assert unrolled.how.startswith("unrolled") and unrolled.last == line_of(programs.simulate, "total * 0.5")


def test_loops_that_python_ran() -> None:
    contents = programs.deep.view(*programs.deep_example(3)).contents
    (loop,) = contents.statements
    assert loop.text == "for w, b in layers:" and loop.how.startswith("unrolled: Python ran it")


def test_loops_that_are_no_statements() -> None:
    """That of ``pb.scan``, forward and backward, is one row."""

    def decays(x: Any) -> Any:
        return np.sum(pb.scan(lambda carry, row: (0.5 * carry + row @ row, carry), np.float64(0.0), x)[1])

    contents = pb.value_and_grad(decays).view(np.ones((9, 3))).contents
    (row,) = contents.statements
    assert row.how == "rolled: scan of the program" and "pb.scan" in row.text
    assert [contents.nodes[k].kind for k in row.nodes] == ["loop", "loop"]


def test_sources_are_those_of_the_operations() -> None:
    contents = programs.deep.view(*programs.deep_example(2)).contents
    (source,) = contents.sources
    assert source.name == "programs.py" and source.lines == tuple(inspect.getsource(programs).splitlines())
    spans = {name: (first, last) for name, first, last in source.functions}
    assert spans["layer"] == (line_of(programs.layer, "def layer"), line_of(programs.layer, "return h"))
    assert contents.places[contents.first] == Place(source=0, line=min(p.line for p in contents.places))


def test_calls_with_effects_are_not_made(capfd: pytest.CaptureFixture[str]) -> None:
    contents = pb.jit(programs.printing).view(np.ones(3)).contents
    assert contents.error is None and not contents.time.frames and "effects" in contents.time.note
    assert "the sum is" not in capfd.readouterr().out


def test_nothing_to_compute() -> None:
    contents = pb.jit(lambda x: x).view(np.ones(3)).contents
    assert contents.error is None and contents.nodes == () and contents.memory is not None


def test_calls_that_raise_have_no_times() -> None:
    def checked(x: Any) -> Any:
        if x[0] > 0.5:
            raise ValueError("x is large")
        return x * 2.0

    contents = pb.jit(checked).view(np.ones(3)).contents
    assert contents.error is None and contents.nodes and "ValueError: x is large" in contents.time.note


def test_an_error_is_at_its_line() -> None:
    contents = programs.called.view(np.ones(3)).contents
    assert contents.error is not None and contents.error.kind == "TraceError" and not contents.stages
    at = contents.places[contents.error.at]
    assert at.line == line_of(programs.branches_on_values, "if y[0]") and contents.first == contents.error.at
    assert contents.error.lines[0] == "a Python branch (if) on a traced value"
    assert "pb.jit(guards=True)" in contents.error.lines[-1]
    assert contents.sources[at.source].path == programs.__file__


def test_an_error_of_the_function_is_at_its_line() -> None:
    contents = pb.jit(programs.mistaken).view(np.ones(4)).contents
    assert contents.error is not None
    assert contents.places[contents.error.at].line == line_of(programs.mistaken, "np.zeros(3)")


def test_an_error_of_the_gradient_is_at_its_line() -> None:
    def without_gradient(x: Any) -> Any:
        y = pb.callback(np.sin, x, x)
        return np.sum(y)

    contents = pb.grad(without_gradient).view(np.ones(3)).contents
    assert contents.error is not None
    assert contents.places[contents.error.at].line == line_of(without_gradient, "pb.callback")


def test_wrong_arguments_raise() -> None:
    with pytest.raises(TypeError, match="missing 3 required positional arguments"):
        pb.jit(programs.network).view(1.0)


def test_unknown_stages_are_refused(network: Contents) -> None:
    with pytest.raises(ValueError, match="there is no stage 'mlir' of this call; there are trace, grad, simplify, fuse"):
        network.stage("mlir")


