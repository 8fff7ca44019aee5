"""Steps that need one another keep their order; in any other order, and with any reuse of memory, results have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.analysis.steps import accesses, dependencies, is_schedule, kernel_accesses, reordered
from pullback.ir.core.structure import Module
from pullback.ir.passes.size_classes import templated
from pullback.ir.text import parse_function, parse_module
from pullback.programs.pipeline import layouts_of, lowered, scheduled, split_outcomes, typed_constants
from pullback.runtime.program import arena, plan
from pullback.runtime.program import executable as program_executable
from pullback.runtime.program.arena import Life, Packing, ReusableBuffer, aligned_bytes, live_bytes
from pullback.runtime.program.executable import Executable

KERNEL = """
kernel k(%a: &f64[s0], %b: &f64[s0], %c: &f64[s0], %d: &f64[s0, s0], %n: i64[]) -> () {
  %0: i64[] = extent {size=s0}
  for %0 (%i: i64[]) {
    %1: f64[] = load %a, %i
    %2: f64[] = load %b, %i
    %3: f64[] = add %1, %2
    store %3, %b, %i
    store %3, %c, %i
    %r: &f64[s0] = subview %d, %i
    store %3, %r, %i
    yield
  }
  return
}
"""

STEPS = """pullback-ir 2
program p(%x: &f64[4], %y: &f64[4]) -> (&f64[4], &f64[4]) {
  %a: &f64[4] = alloc
  launch %x, %a {kernel=twice, sizes=[4]}
  %b: &f64[4] = alloc
  launch %y, %b {kernel=twice, sizes=[4]}
  launch %b, %a {kernel=add, sizes=[4]}
  %c: &f64[4] = alloc
  launch %b, %c {kernel=twice, sizes=[4]}
  free %b
  return %a, %c
}

kernel twice(%x: &f64[s0], %out0: &f64[s0]) -> () {
  %0: i64[] = extent {size=s0}
  for %0 (%i: i64[]) {
    %1: f64[] = load %x, %i
    %2: f64[] = add %1, %1
    store %2, %out0, %i
    yield
  }
  return
}

kernel add(%x: &f64[s0], %to: &f64[s0]) -> () {
  %0: i64[] = extent {size=s0}
  for %0 (%i: i64[]) {
    %1: f64[] = load %x, %i
    %2: f64[] = load %to, %i
    %3: f64[] = add %1, %2
    store %3, %to, %i
    yield
  }
  return
}
"""


def test_what_a_kernel_reads_and_writes() -> None:
    reads, writes = kernel_accesses(parse_function(KERNEL))
    assert (sorted(reads), sorted(writes)) == ([0, 1, 4], [1, 2, 3])


def test_what_steps_need() -> None:
    module = parse_module(STEPS)
    before = dependencies(accesses(module))
    assert before == [frozenset(), frozenset(), frozenset({0, 1}), frozenset({1})]
    assert is_schedule([1, 3, 0, 2], before) and not is_schedule([0, 2, 1, 3], before) and not is_schedule([0, 1, 2], before)
    with pytest.raises(ValueError, match="before one that it needs"):
        reordered(module, [0, 2, 1, 3])
    other = reordered(module, [1, 3, 0, 2])
    kinds = [i.op.name for i in other.functions[0].instructions]
    assert kinds == ["alloc", "launch", "alloc", "launch", "alloc", "launch", "launch", "free"]


def test_steps_that_can_fail_keep_their_order() -> None:
    def f(x: Any, i: Any, j: Any) -> Any:
        return np.sort(x)[i], np.sort(x * 2)[j], np.sort(x * 3)

    module = module_of(pb.jit(f), (np.ones(5), np.array([1, 2]), np.array([3])))[0]
    steps = accesses(module)
    failing = [k for k, s in enumerate(steps) if s.in_order]
    before = dependencies(steps)
    assert len(failing) >= 2
    for order in schedules(before, 20):
        assert [k for k in order if k in failing] == failing


def test_what_writes_over_a_parameter_runs_after_what_can_fail() -> None:
    text = pb.jit(lambda p, i: (p * 2, np.sort(p)[i]), donate=0).stages(np.ones(5), np.array([1]))["program"]
    module = parse_module(text)
    steps = accesses(module)
    (failing,) = (k for k, s in enumerate(steps) if s.in_order)
    (over,) = (k for k, s in enumerate(steps) if s.writes & s.parameters)
    assert all(order.index(failing) < order.index(over) for order in schedules(dependencies(steps), 20))


# random programs


def module_of(function: Any, args: Sequence[Any]) -> tuple[Module, dict[str, int], list[Any]]:
    """The scheduled program of a call, its sizes and its arguments."""
    call = function.examine(args, {})
    result = templated(split_outcomes(call.trace)[0])
    module = lowered(result, layouts_of(call.trace, call.leaves, len(result.constants)), "cpu", lambda *_: None)
    module = scheduled(module, "cpu")
    arguments = call.trace.arguments(call.leaves)
    assert arguments is not None
    return module, dict(result.sizes), [*arguments, *typed_constants(result)]


def schedules(before: Sequence[frozenset[int]], count: int) -> list[list[int]]:
    """Random legal orders of steps."""
    result = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        order: list[int] = []
        while len(order) < len(before):
            ready = [k for k, needs in enumerate(before) if k not in order and needs <= set(order)]
            order.append(ready[rng.integers(len(ready))])
        result.append(order)
    return result


def random_program(seed: int, steps: int = 14) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of square matrices, most of whose steps cannot share a kernel."""
    n = 40
    rng = np.random.default_rng(seed)
    picks = [[int(k) for k in (*rng.integers(max(0, m - 6), m, 2), rng.integers(8))] for m in range(2, 2 + steps)]

    def f(x: Any, y: Any, i: Any) -> Any:
        values = [x, y]
        for first, second, kind in picks:
            a, b = values[first], values[second]
            built = [
                lambda a, b: a @ b / n, lambda a, b: a.T - np.tanh(b), lambda a, b: np.sort(a, axis=1) * b,
                lambda a, b: np.cumsum(a, axis=0) / n, lambda a, b: np.exp(a - a.max(axis=1, keepdims=True)) + b,
                lambda a, b: a - b.mean(axis=0), lambda a, b: a[i] * b, lambda a, b: np.linalg.solve(b.T @ b + n * np.eye(n), a),
            ][kind]  # fmt: skip
            values.append(built(a, b))
        return values[-1], values[-3], values[-5].sum(), values[-6] @ values[-2]

    return f, (rng.normal(size=(n, n)), rng.normal(size=(n, n)), rng.integers(0, n, n))


def apart(lives: Sequence[Life], rooms: Sequence[ReusableBuffer] = ()) -> Packing:
    """Every buffer has memory of its own."""
    starts = np.cumsum([0, *(aligned_bytes(life.bytes) for life in lives)])
    return Packing(tuple((None, int(s)) for s in starts[:-1]), int(starts[-1]), live_bytes(lives))


def shuffled(seed: int) -> Callable[..., Packing]:
    """Buffers take their places in a random order, in results where they can."""

    def packed(lives: Sequence[Life], rooms: Sequence[ReusableBuffer] = ()) -> Packing:
        rng = np.random.default_rng(seed)
        keys = {id(life): rng.random() for life in lives}
        places, most = arena._lowest_fit(lives, rooms, lambda life: (keys[id(life)],))  # type: ignore[arg-type,return-value]
        return Packing(tuple(places), most, live_bytes(lives))

    return packed


def bits(executable: Executable, arguments: Sequence[Any], sizes: dict[str, int]) -> list[bytes]:
    """What a program computes in memory full of ones."""
    instance = executable.instance(sizes)
    instance.frames.clear()
    chosen = [poisoned(shape, dtype) for shape, dtype in instance.results]
    frame = program_executable.Frame(instance)
    frame.take(instance.arena_bytes)
    assert frame.arena is not None
    frame.arena[...] = 255
    instance.frames.append(frame)
    return [np.asarray(r).tobytes() for r in executable.call(instance, [np.copy(a)[()] for a in arguments], chosen)]


def poisoned(shape: tuple[int, ...], dtype: Any) -> Any:
    result = np.empty(shape, dtype)
    result.reshape(-1).view(np.uint8)[...] = 255
    return result


def check_orders(
    module: Module, sizes: dict[str, int], arguments: list[Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:  # fmt: skip
    before = dependencies(accesses(module))
    monkeypatch.setattr(plan, "pack", apart)
    expected = bits(Executable(module), arguments, sizes)
    for seed, order in enumerate(schedules(before, count)):
        other = reordered(module, order)
        for pack in (arena.pack, shuffled(seed)):
            monkeypatch.setattr(plan, "pack", pack)
            assert bits(Executable(other), arguments, sizes) == expected, order


@pytest.mark.parametrize("seed", range(12))
def test_any_schedule_and_any_reuse_of_memory_give_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args = random_program(seed)
    module, sizes, arguments = module_of(pb.jit(f), args)
    assert len(accesses(module)) >= 4
    check_orders(module, sizes, arguments, monkeypatch, 4)


@pytest.mark.parametrize("seed", range(4))
def test_any_schedule_of_a_gradient(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args = random_program(seed + 100, steps=7)
    g = pb.value_and_grad(lambda x, y, i: np.sum(np.tanh(f(x, y, i)[0])), argnums=(0, 1))
    check_orders(*module_of(g, args), monkeypatch, 3)


def test_any_schedule_with_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(w: Any, xs: Any) -> Any:
        _, first = pb.scan(lambda h, x: (np.tanh(h @ w + x),) * 2, np.zeros(8), xs)
        _, second = pb.scan(lambda h, x: (np.sin(h @ w - x),) * 2, np.ones(8), xs * 2)
        return first @ w, second + 1, np.sort(xs, axis=0) @ w.T

    rng = np.random.default_rng(0)
    args = (rng.normal(size=(8, 8)), rng.normal(size=(20, 8)))
    check_orders(*module_of(pb.jit(f), args), monkeypatch, 4)


@pytest.mark.parametrize("seed", range(12))
def test_donated_memory_gives_the_same_bits(seed: int) -> None:
    """With results in donated arguments and in arrays of the caller's, as without."""
    f, args = random_program(seed + 200, steps=9)
    plain = pb.jit(f)(*args)
    arguments = [np.array(a) for a in args]
    donated = pb.jit(f, donate=(0, 1))(*arguments)
    out = tuple(poisoned(np.shape(r), np.asarray(r).dtype) for r in plain)
    into = pb.jit(f).into(out, *args)
    for a, b, c in zip(plain, donated, into, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() == np.asarray(c).tobytes()
