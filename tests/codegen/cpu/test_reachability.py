"""What a call's sizes reach of a kernel: steps never contradict the kernel, and the rest is compiled when a call reaches it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.loops.reachability import Reach, Several, is_reached, joined, renamed
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.slots import Slot
from pullback.codegen.targets import Target
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Extent, For, If, Threads
from pullback.ir.ops.program import launch
from pullback.ir.shapes.extents import renamed_extent, value_of
from pullback.ir.text import parse_function, parse_module
from pullback.runtime.process import counters
from pullback.runtime.program.native_addresses import reaches, steps_of

Array = Any

CHOICE = """pullback-ir 2

kernel k(%x: &f64[s0,s1], %out: &f64[s0,s1]) -> () {
  %rows: i64[] = extent {size=s0}
  %columns: i64[] = extent {size=s0*s1}
  %most: i64[] = const {value=400}
  %zero: i64[] = const {value=0}
  %three: i64[] = const {value=3}
  %threads: i64[] = threads
  %is_few: bool[] = le %columns, %most
  %is_more: bool[] = bitnot %is_few
  %few: i64[] = select %is_few, %rows, %zero
  %left: i64[] = sub %rows, %few
  %shared: i64[] = idiv %left, %threads
  %part: i64[] = mul %few, %threads
  %half: i64[] = raw_shr %few, %three
  %either: bool[] = bitor %is_few, %is_more
  return
}
"""


def paths(kernel: Function, *names: str) -> tuple[Value, ...]:
    built = {v.name: v for i in walk(kernel.body) for v in i.results}
    return tuple(built[name] for name in names)


@pytest.mark.parametrize(
    ("path", "few", "many"),
    [
        (["few"], True, False),
        (["left"], False, True),
        (["is_more"], False, True),
        (["part"], True, False),  # 0 times anything
        (["shared"], True, True),  # the number of threads is unknown at compile time
        (["half"], False, False),
        (["few", "left"], False, False),
        (["threads"], True, True),
        (["threads", "few"], True, False),
        (["either"], True, True),
    ],
    ids=lambda arguments: " and ".join(arguments) if isinstance(arguments, list) else None,
)
def test_what_sizes_say(path: list[str], few: bool, many: bool) -> None:
    kernel = parse_function(CHOICE)
    steps = Reach(kernel.body).steps([paths(kernel, *path)])
    assert bool(steps) == (path != ["threads"])
    assert [not steps or is_reached(steps, {"s0": 7, "s1": n}) for n in (50, 60)] == [few, many]


def test_a_number_too_large_for_words_is_none() -> None:
    text = CHOICE.replace("%half: i64[] = raw_shr %few, %three", "%half: i64[] = mul %rows, %rows")
    kernel = parse_function(text)
    steps = Reach(kernel.body).steps([paths(kernel, "half")])
    assert is_reached(steps, {"s0": 2**32, "s1": 1})
    assert not is_reached(steps, {"s0": 0, "s1": 1})


def test_what_a_loop_counts_is_not_known() -> None:
    kernel = parse_function(
        CHOICE.replace(
            "  return\n",
            """  for %rows {map=serial, ordered=true} (%i: i64[]) {
    %inside: bool[] = gt %i, %zero
    yield
  }
  return
""",
        )
    )
    assert is_reached(Reach(kernel.body).steps([paths(kernel, "inside")]), {"s0": 0, "s1": 0})


def test_what_is_reached_in_several_ways() -> None:
    kernel = parse_function(CHOICE)
    few, many, unknown = (paths(kernel, name) for name in ("few", "left", "threads"))
    reach = Reach(kernel.body)
    assert [is_reached(reach.steps([few, many]), {"s0": rows, "s1": 50}) for rows in (7, 0)] == [True, False]
    assert not reach.steps([few, unknown]) and not reach.steps([few, ()]) and not reach.steps([])


@pytest.mark.parametrize(("name", "reached"), [("rows", [False, False, True]), ("half", [False, True, True])])
def test_counts_above_one(name: str, reached: list[bool]) -> None:
    kernel = parse_function(CHOICE.replace("raw_shr %few", "raw_shr %columns"))
    (count,) = paths(kernel, name)
    steps = Reach(kernel.body).steps([(Several(count),)])
    assert [is_reached(steps, {"s0": rows, "s1": 20}) for rows in (0, 1, 2)] == [False, *reached[1:]]


def test_a_count_that_sizes_do_not_decide_may_be_above_one() -> None:
    kernel = parse_function(CHOICE)
    assert not Reach(kernel.body).steps([(Several(*paths(kernel, "threads")),)])


def test_steps_of_a_launch() -> None:
    """The sizes of a kernel are extents of the program that launches it, of which some may be unknown."""
    kernel = parse_function(CHOICE)
    steps = Reach(kernel.body).steps([paths(kernel, "is_more")])
    sizes = {"n": 300, "m": 2}
    known = renamed(steps, lambda extent: renamed_extent(extent, {"s0": "n", "s1": "m*3"}))
    assert is_reached(known, sizes)
    assert not is_reached(known, {"n": 60, "m": 2})
    assert is_reached(renamed(steps, lambda extent: None), {})


def test_steps_of_several_launches() -> None:
    kernel = parse_function(CHOICE)
    few, more = (Reach(kernel.body).steps([paths(kernel, name)]) for name in ("few", "is_more"))
    never = renamed(more, lambda extent: 0)
    assert joined([few]) == joined([few, few]) == few
    assert not joined([few, ()])
    assert [is_reached(joined([never, few]), {"s0": rows, "s1": 5}) for rows in (0, 5)] == [False, True]
    assert [is_reached(joined([never, more]), {"s0": rows, "s1": 50}) for rows in (5, 50)] == [False, True]


def biased(x: Array, w: Array, b: Array) -> Array:
    return np.maximum(x @ w + b, 0.0)


def squares(x: Array, w: Array, b: Array) -> Array:
    return np.sum(np.square(x @ w - b), axis=-1)


def scaled(x: Array, w: Array, b: Array) -> Array:
    return np.tanh(x) @ w * b


FUNCTIONS = {f.__name__: f for f in (biased, squares, scaled)}
SHAPES = [(6, 40, 30, 100), (50, 9, 5, 7), (20, 70, 30, 20), (9, 33, 20, 12), (3, 1, 9, 40), (5, 40, 0, 20), (0, 9, 9, 9)]
"""Shapes of wide and small products, three or two vectors wide on some machine, with one row, with K = 0, and empty."""


def arguments(shape: tuple[int, int, int, int], dtype: str) -> tuple[Array, ...]:
    z, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    return tuple(rng.normal(size=s).astype(dtype) for s in ((z, m, k), (z, k, n), (n,)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("first", range(len(SHAPES) - 3))
def test_all_sizes_after_any(first: int, name: str, dtype: str) -> None:
    """Whatever a kernel was compiled for first, calls of other sizes get what they need, once."""
    function = FUNCTIONS[name]
    compiled = pb.jit(lambda x, w, b: function(x, w, b))
    for shape in (SHAPES[first], *SHAPES, *SHAPES):
        inputs = arguments(shape, dtype)
        np.testing.assert_allclose(compiled(*inputs), function(*inputs), rtol=1e-4 if dtype == "f4" else 1e-10, atol=1e-4)
    before = counters.snapshot()
    for z, m, k, n in SHAPES:
        compiled(*arguments((z, m, k, n), dtype))
    assert (counters.snapshot() - before).compiles == 0


def test_a_form_is_compiled_when_a_call_needs_it() -> None:
    compiled = pb.jit(lambda x, w, b: np.maximum(np.abs(x @ w - b) - b, b))  # no other test has this kernel
    created = []
    for shape in ((6, 40, 30, 100), (6, 50, 40, 110), (50, 9, 5, 7), (60, 10, 6, 8)):
        before = counters.snapshot()
        compiled(*arguments(shape, "f8"))
        taken = counters.snapshot() - before
        created.append((taken.templates_built, taken.compiles))
    (built, wide), (_, wider), (new, small), (_, smaller) = created
    assert built == 1 and wide > 1 and new == 0
    assert 1 <= small < wide and wider == smaller == 0


def repeated(x: Array, y: Array, k: int) -> Array:
    """Arrays of as many elements as sizes say, in a loop and outside."""
    x = np.tanh(x + 0.25 * y)
    for _ in range(k):
        x = x + np.sin(y * x)
        y = np.cumsum(x * 1e-6, axis=-1) + np.exp(-y * y)
    return x, np.sum(x * y, axis=0)


@pytest.mark.parametrize("first", range(4))
def test_chunks_of_kernels_in_loops_after_any_sizes(first: int) -> None:
    """The code for several chunks is compiled for the first sizes that have several, and results do not depend on the order."""
    compiled, shapes = pb.jit(lambda x, y, k: repeated(x, y, k)), [(3, 5), (300_000,), (2, 400_000), (1, 7)]
    rng = np.random.default_rng(first)
    for shape in (*shapes[first:], *shapes[:first], *shapes):
        x, y = rng.normal(size=(2, *shape))
        for result, expected in zip(compiled(x, y, np.int64(3)), repeated(x, y, 3), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


def test_code_for_several_chunks_waits_for_sizes_that_have_several() -> None:
    def decaying(x: Array, k: int) -> Array:
        for _ in range(k):
            x = np.cosh(x * 0.125) - 0.75 * x  # no other test has this kernel
        return x

    compiled, created = pb.jit(decaying), []
    for n in (10, 100, 300_000, 400_000, 20):
        before = counters.snapshot()
        compiled(np.linspace(0, 1, n), np.int64(4))
        created.append((counters.snapshot() - before).compiles)
    assert created[0] and created[2] == 1
    assert created[1] == created[3] == created[4] == 0


@pytest.mark.parametrize("name", ["biased", "squares"])
def test_the_longest_loop_is_written_first(name: str) -> None:
    """A thread compiles it while the others are written."""
    module = pb.jit(FUNCTIONS[name]).stages(*arguments((3, 40, 30, 50), "f8"))["lower"]
    told: dict[str, None] = {}
    for kernel in (f for f in parse_module(module).functions if f.kind == "kernel"):
        emit(schedule(kernel, "", Target(64, True)), "", Target(64, True), lambda slot: told.setdefault(str(slot[2])))
    lines = [text.count("\n") for text in told if "ptr noalias %context" in text]
    assert len(lines) > 1
    assert lines[0] == max(lines)


def texts(slots: Sequence[Slot]) -> set[tuple[str, str]]:
    """The names of functions and their texts."""
    return {(slot[1], str(slot[2])) for slot in slots}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["biased", "squares"])
def test_what_sizes_reach_is_written_first(name: str, shape: tuple[int, ...]) -> None:
    """The text is the same whichever sizes come first, so that other processes hit the cache."""
    module = parse_module(pb.jit(FUNCTIONS[name]).stages(*arguments(shape, "f8"))["lower"])
    kernels = {f.name: f for f in module.functions}
    forms = 0
    for i in module.functions[0].instructions:
        if i.op is launch:
            kernel = schedule(kernels[i.params["kernel"]], "", Target(64, True))
            reached = functools.partial(reaches, i, sizes={})
            first, every = list[Slot](), list[Slot]()
            emitted = emit(kernel, "", Target(64, True), first.append, reached)
            emit(kernel, "", Target(64, True), every.append)
            wanted = [slot for slot in emitted.slots if slot[0] == "shared" and reached(steps_of(slot))]
            assert texts(first) == texts(wanted) <= texts(every)
            forms += sum("ptr noalias %context" in str(slot[2]) for slot in first)
    assert forms or min(shape) < 2


# What steps say, and what the kernel computes.


def values(kernel: Function, sizes: Mapping[str, int], threads: int) -> dict[Value, Any]:
    """Evaluate the values that a kernel computes from its sizes outside loops."""
    result: dict[Value, Any] = {}
    for i in kernel.instructions:
        if isinstance(i.op, Extent):
            result[i.result] = np.int64(value_of(i.params["size"], sizes))
        elif isinstance(i.op, Constant):
            result[i.result] = np.asarray(i.params["value"], i.result.type.dtype.numpy)[()]
        elif isinstance(i.op, Threads):
            result[i.result] = np.int64(threads)
        elif _is_computed(i, result):
            with np.errstate(all="ignore"):
                result[i.result] = i.op.function(*(result[v] for v in i.operands))
    return result


def _is_computed(i: Instruction, result: Mapping[Value, Any]) -> bool:
    return not i.regions and bool(i.operands) and len(i.results) == 1 and all(v in result for v in i.operands)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps_never_contradict_the_kernel(name: str, width: int) -> None:
    module = pb.jit(FUNCTIONS[name]).stages(*arguments((3, 40, 30, 50), "f4"))["lower"]
    kernels = [f for f in parse_module(module).functions if f.kind == "kernel"]
    rng, met = np.random.default_rng(width), set()
    for kernel in (schedule(k, "", Target(width, True)) for k in kernels):
        reach, names = Reach(kernel.body), sorted({e for v in kernel.parameters for e in v.type.shape if isinstance(e, str)})
        asked = {i.operands[0]: reach.steps([(i.operands[0],)]) for i in kernel.instructions if isinstance(i.op, If | For)}
        drawn = rng.integers(0, 300, (200, len(names)))
        for extents in (*itertools.product((0, 1, 9, 40), repeat=len(names)), *drawn):
            sizes = dict(zip(names, map(int, extents), strict=True))
            result = values(kernel, sizes, int(rng.integers(1, 9)))
            for value, steps in asked.items():
                is_met = not steps or is_reached(steps, sizes)
                assert is_met or result[value] == 0, (value.name, sizes)
                met.add((value, is_met))
    assert any(not is_met for _, is_met in met)
