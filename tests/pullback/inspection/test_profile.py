"""``f.profile``: the parts of a call add up to it, by the program that runs, and the call is as it was."""

import json
import platform
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.cli.main import main
from pullback.codegen.cpu.llvm.program_timing import clock_of
from pullback.inspection import KernelCost, Limits, Profile, ProfiledStep
from pullback.inspection.cost import CLASSES
from pullback.ir.core.structure import Loc
from pullback.programs.report import WIDTH
from pullback.runtime.program.profile import CLOCK
from tests.pullback.inspection.test_inspection import CALLS, LOSS, line_of, loss
from tests.support.paths import EXAMPLES

LIMITS = Limits(
    traffic=((1 << 15, 200e9), (1 << 20, 100e9)), flops={"f64": 50e9, "f32": 100e9}, functions=1e9, threads=2
)  # fmt: skip


def recurrent(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, h

    h, ys = pb.scan(step, h, xs)
    return np.sum(ys**2) + np.sum(h)


def halved(x: Any) -> Any:
    return pb.while_loop(lambda s: s[0] > 1.0, lambda s: (s[0] / 2, s[1] + np.sin(s[1])), (np.max(x), x))[1]


def chosen(x: Any) -> Any:
    return pb.cond(np.sum(x) > 0, lambda x: np.sort(np.exp(x)), lambda x: np.cumsum(np.tanh(x)), x)


RECURRENT = (np.eye(8) / 2, np.ones(8), np.ones((50, 8)))


def added_up(report: Profile) -> None:
    """The parts are the whole, none is negative, and steps of straight programs follow one another."""
    inside = sum(s.seconds for s in report.steps)
    assert inside + report.control_seconds + report.outside_seconds == pytest.approx(report.seconds, rel=1e-9)
    assert report.outside_seconds > 0 and report.control_seconds >= 0 and all(s.seconds >= 0 for s in report.steps)
    assert sum(map(report.seconds_of, ("forward", "backward", "both"))) == pytest.approx(inside)
    straight = [s for s in report.steps if s.start is not None]
    assert len(straight) in (0, len(report.steps))
    for step, after in pairwise(straight):
        assert step.start is not None and after.start == pytest.approx(step.start + step.seconds, rel=1e-6)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "gpu"])
def test_every_kind_of_function(name: str) -> None:
    function, args, kwargs = CALLS[name]
    before = repr(args)
    report = function.profile(*args, **kwargs)
    assert repr(args) == before
    assert max(map(len, str(report).splitlines())) <= WIDTH and report.headline in repr(report).replace("\n", " ")
    if report.steps:
        added_up(report)
        assert len(report.steps) == function.cost(*args, **kwargs).launches
    assert (report.ordinary_seconds is None) == (name == "writes")


def test_time_is_that_of_the_calls() -> None:
    start = time.perf_counter()
    report = pb.value_and_grad(loss).profile(*LOSS)
    taken = time.perf_counter() - start
    assert 0 < report.calls * report.seconds < taken
    assert report.calls >= 2


def test_steps_in_the_users_lines() -> None:
    report = pb.value_and_grad(loss).profile(*LOSS)
    added_up(report)
    first = line_of(loss, "tanh")
    by_part = {part: [s for s in report.steps if s.part == part] for part in ("forward", "backward", "both")}
    assert [s.lines[0].line for s in by_part["forward"] if "tanh" in s.ops] == [first]
    assert by_part["backward"] and all(loc.note.startswith("pullback") for s in by_part["backward"] for loc in s.lines)
    costs = pb.value_and_grad(loss).cost(*LOSS).kernels
    assert [s.cost for s in report.steps] == list(costs)
    assert all(s.share > 0 and s.limit in ("memory", "compute") for s in report.steps)
    assert f"test_inspection.py:{first}" in str(report)


def test_a_function_without_a_gradient_is_all_forward() -> None:
    report = pb.jit(loss).profile(*LOSS)
    assert {s.part for s in report.steps} == {"forward"} and "part" not in str(report)


# control flow


def twice(h: Any) -> Any:
    return np.sum(pb.grad(lambda h: recurrent(RECURRENT[0], h, RECURRENT[2]))(h) ** 2)


LOOPS = {
    "value": (pb.jit(recurrent), RECURRENT),
    "gradient": (pb.grad(recurrent), RECURRENT),
    "twice": (pb.grad(twice), (np.ones(8),)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    function, args = LOOPS[name]
    report = function.profile(*args)
    added_up(report)
    turns = len(RECURRENT[2])
    assert all(s.start is None for s in report.steps)
    inside = [s.runs for s in report.steps if s.runs > 1]
    assert inside and all(runs % turns == 0 for runs in inside)
    assert report.control_seconds > 0


def test_loops_of_unknown_length_are_counted_as_they_ran() -> None:
    report = pb.jit(halved).profile(np.linspace(0.0, 64.0, 1000))
    (step,) = [s for s in report.steps if "sin" in s.ops]
    assert step.runs == 6 and step.cost is not None
    assert step.cost.functions == 6 * 1000 and step.cost.launches == 6


def test_a_branch_that_is_not_taken_does_not_run() -> None:
    for sign, taken, other in ((1.0, "exp", "tanh"), (-1.0, "tanh", "exp")):
        report = pb.jit(chosen).profile(sign * np.ones(100))
        runs = {op: s.runs for s in report.steps for op in s.ops}
        assert runs[taken] == 1 and runs[other] == 0
        added_up(report)


def test_ordinary_programs_read_no_clock() -> None:
    plain = pb.grad(recurrent).stages(*RECURRENT)["llvm"]
    pb.grad(recurrent).profile(*RECURRENT)
    assert CLOCK not in plain and CLOCK not in pb.grad(recurrent).stages(*RECURRENT)["llvm"]


def test_clocks_of_machines() -> None:
    assert clock_of("x86_64") == clock_of("AMD64") == "llvm.x86.rdtsc"
    assert clock_of("aarch64") == "llvm.readsteadycounter"
    assert clock_of(platform.machine()) == CLOCK


# effects and errors


def test_what_prints_is_not_called_once_more_in_the_ordinary_way(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        pb.print("y {y}", y=y[0])
        return np.sum(y @ y)

    report = pb.jit(f).profile(np.zeros(3))
    assert capsys.readouterr().out.startswith("y 1.0\ny 1.0\n")
    (step,) = [s for s in report.steps if s.cost is None]
    assert step.ops == ("print",) and [loc.line for loc in step.lines] == [line_of(f, "pb.print")]
    assert report.ordinary_seconds is None and "effects" in str(report)
    added_up(report)


def test_a_callback_that_raises_raises() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("broken")

    def f(x: Any) -> Any:
        return pb.callback(broken, pb.ShapeDtypeStruct((3,), np.float64), np.exp(x)) + 1

    with pytest.raises(ZeroDivisionError, match="broken"):
        pb.jit(f).profile(np.zeros(3))


@pytest.mark.parametrize(
    "call", [lambda x, k: np.sum(x @ x) + x[k], lambda x, k: pb.fori_loop(0, 3, lambda i, s: s + x[k + i], 0.0)]
)
def test_a_check_that_fails_raises_as_the_call(call: Callable[..., Any]) -> None:
    function = pb.jit(call)
    with pytest.raises(IndexError) as plain:
        function(np.ones(3), 7)
    with pytest.raises(IndexError) as result:
        function.profile(np.ones(3), 7)
    assert str(result.value) == str(plain.value)


# the trace and the text


@pytest.mark.parametrize("name", ["straight", "loop"])
def test_a_chrome_trace(name: str, tmp_path: Path) -> None:
    function, args = (pb.value_and_grad(loss), LOSS) if name == "straight" else (pb.grad(recurrent), RECURRENT)
    report = function.profile(*args)
    report.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    whole, steps = slices[0], slices[1:]
    assert whole["dur"] == pytest.approx(report.seconds * 1e6) and len(steps) == len(report.steps) + (name == "loop")
    for first, second in pairwise(steps):
        assert second["ts"] == pytest.approx(first["ts"] + first["dur"])
    assert steps[-1]["ts"] + steps[-1]["dur"] <= whole["dur"] * (1 + 1e-9)
    assert {e["cat"] for e in steps} >= {"backward"}
    assert all(isinstance(e["ts"], float) and e["pid"] == 1 and e["args"] is not None for e in slices)


def cost_of(name: str, flops: int, bytes_: int, **more: Any) -> KernelCost:
    counts = {**dict.fromkeys(CLASSES, 0), "add": flops}
    lines = (Loc("/m.py", 3), Loc("/m.py", 4))
    return KernelCost(
        kernel=name, ops=("sin", "mul"), lines=lines, counts=counts, bytes_read=bytes_, bytes_written=0, calls={}, **more
    )  # fmt: skip


def example() -> Profile:
    ways: list[tuple[Any, float, float]] = [("forward", 10e-6, 1e-6), ("both", 20e-6, 11e-6), ("backward", 30e-6, 31e-6)]
    steps = [
        ProfiledStep(
            name=f"k{k}", part=part, seconds=seconds, start=start, runs=1, cost=cost_of(f"k{k}", 250_000, 1_000_000),
            lines=(Loc("/m.py", 3),), ops=("sin", "mul"),
        )
        for k, (part, seconds, start) in enumerate(ways)
    ]  # fmt: skip
    return Profile(
        function="grad(f)", steps=tuple(steps), seconds=65e-6, control_seconds=0.0, outside_seconds=5e-6, ordinary_seconds=63e-6,
        calls=99, footprint=1 << 20, limits=LIMITS,
    ).against(LIMITS)  # fmt: skip


def test_the_text() -> None:
    assert str(example()) == (
        "grad(f): 65.0 us a call, of which 60.0 in steps (forward 10.0, backward 30.0, both 20.0)\n"
        "  step       us   %    GB/s  GFLOP/s     of limit  part      lines and ops\n"
        "  k0       10.0  15  100.00    25.00  100% memory  forward   m.py:3-4: sin, mul\n"
        "  k1       20.0  31   50.00    12.50   50% memory  both      m.py:3-4: sin, mul\n"
        "  k2       30.0  46   33.33     8.33   33% memory  backward  m.py:3-4: sin, mul\n"
        "  outside  5.00   8                                          arguments and results\n"
        "mean of 99 calls; an ordinary call takes 63.0 us, without 5 reads of the clock\n"
        "limits, given, 2 threads: 50 GFLOP/s of f64 and 100 GFLOP/s of f32 in a product of matrices, 1.0 G\n"
        "  exp/s, 100 GB/s among the 1,048,576 bytes of this call"
    )


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "digits.py"
    assert main(["profile", f"{file}:loss", "--example", "example", "--grad"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("value_and_grad(loss): ") and "digits.py:35: contract" in text and "measured in this process" in text


def test_other_limits() -> None:
    slow = Limits(traffic=((1 << 30, 1e12),), flops={"f64": 25e9, "f32": 50e9}, functions=1e9, threads=1)
    result = example().against(slow)
    assert [s.limit for s in result.steps] == ["compute"] * 3
    assert [round(s.share, 3) for s in result.steps] == [1.0, 0.5, 0.333]
    assert [s.seconds for s in result.steps] == [s.seconds for s in example().steps]


def test_limits_of_this_machine() -> None:
    result = pb.jit(np.exp).profile(np.ones(4)).limits
    rates = [rate for _, rate in result.traffic]
    assert rates == sorted(rates, reverse=True) and min(rates) > 0 and result.functions > 0
    assert set(result.flops) == {"f64", "f32"} and result.source == "measured in this process"
    assert result.threads == pb.get_num_threads()
    assert result is pb.jit(np.exp).profile(np.ones(4)).limits
    assert result.traffic_of(1) == rates[0] and result.traffic_of(1 << 40) == rates[-1]


def test_single_precision_has_its_own_limit() -> None:
    x = np.ones((64, 64), np.float32)
    (step,) = pb.jit(lambda x: x @ x).profile(x).against(LIMITS).steps
    assert step.cost is not None and step.cost.is_single and step.limit == "compute"
    assert step.share == pytest.approx(step.cost.flops / 100e9 / step.seconds)


def test_donated_arguments_are_left_alone() -> None:
    function = pb.jit(lambda p, g: p - 0.5 * g, donate=0)
    p, g = np.ones(1000), np.full(1000, 2.0)
    report = function.profile(p, g)
    assert p.sum() == 1000.0 and len(report.steps) == 1
    assert function(p, g) is p and p.sum() == 0.0
