"""Loops whose threads take several elements at once, in CUDA C, against the interpreter: wherever arrays begin and rows end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cuda.source import launch as cuda_launch
from pullback.codegen.cuda.source.launch import Launches
from pullback.runtime.cuda.program.argument_blocks import sized_kernel
from tests.support.cuda.host_programs import Machine, Make, emitted, expected, launch_all, run_program, scheduled, traced
from tests.support.cuda.targets import on_each
from tests.support.golden_files import assert_same

ODD = (1, 2, 3, 5, 8, 31, 64, 333)


@pytest.fixture(autouse=True)
def few_are_packed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_launch, "PACKED_FROM", 0)


def some(*shape: int, dtype: str = "f4") -> Any:
    return (np.random.default_rng(len(shape)).integers(1, 50, shape) / 8).astype(dtype)


def check(machine: Make, call: Callable[..., Any], *args: Any, **how: Any) -> None:
    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values), **how)


def text_of(call: Callable[..., Any], *args: Any) -> str:
    return "\n".join(kernel.body for kernel in emitted(scheduled(traced(call, *args)[0])[0]))


@on_each
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", "i8", "?"])
def test_maps_of_every_length(machine: Make, dtype: str) -> None:
    def call(*arrays: Any) -> Any:
        return tuple(a | b if a.dtype == bool else a * b + a for a, b in zip(arrays[::2], arrays[1::2], strict=True))

    check(machine, call, *(some(n, dtype=dtype) for n in ODD for _ in range(2)))


@on_each
def test_widths_that_differ(machine: Make) -> None:
    args = [some(101), some(101, dtype="f8"), some(101, dtype="f2"), some(101) > 3]
    check(machine, lambda a, b, c, d: (a + b, np.where(d, a, a * 2), c * 2, a > b, (c * 3).astype("f8")), *args)


@on_each
@pytest.mark.parametrize("columns", [1, 3, 4, 30, 260])
def test_rows_of_every_length(machine: Make, columns: int) -> None:
    def call(x: Any, b: Any, c: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        return x * b + c[:, None], p, np.argmin(x * x, axis=1), x.min(axis=1), np.sum(x * b, axis=0)

    check(machine, call, some(7, columns), some(columns), some(7), bitwise=False, rtol=1e-5)


@on_each
def test_gradients_in_rows(machine: Make) -> None:
    def loss(x: Any, g: Any, y: Any) -> Any:
        d = x - x.mean(axis=1, keepdims=True)
        return np.sum(np.tanh(d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * g) * y)

    call = pb.value_and_grad(loss, argnums=(0, 1))
    check(machine, call, some(6, 45, dtype="f8"), some(45, dtype="f8"), some(6, 45, dtype="f8"), bitwise=False, rtol=1e-9)
    check(machine, call, some(6, 44), some(44), some(6, 44), bitwise=False, rtol=5e-3)


@on_each
def test_neighbours_positions_and_look_ups(machine: Make) -> None:
    def call(x: Any, i: Any) -> Any:
        return x[1:] - x[:-1], x[i] + x, x + np.arange(77), x[3:40] * 2, np.where(np.arange(77) % 3 == 0, x, 0)

    check(machine, call, some(77, dtype="f8"), np.arange(77)[::-1] // 2)


@on_each
def test_long_bodies_have_a_thread_for_each_element(machine: Make) -> None:
    def call(x: Any) -> Any:
        return sum((np.sin(x * k) for k in range(1, 12)), start=x)

    assert "pb_read" not in text_of(call, some(50, dtype="f8"))
    check(machine, call, some(51, dtype="f8"), bitwise=False, rtol=1e-11)


@on_each
@pytest.mark.parametrize("at", [0, 1, 2])
def test_sums_are_the_same_wherever_arrays_begin(machine: Make, at: int) -> None:
    """Bit for bit: which thread takes an element does not depend on it."""
    module, _ = scheduled(traced(lambda x: (np.sum(x * x), x * 2, np.sum(np.sin(x))), some(999))[0])
    values = (np.random.default_rng(0).random(1003) - 0.5).astype("f4")
    arguments = some(1003)
    arguments[at : at + 999] = values[:999]
    results = [_launched(machine, module, a, (), (999,), ()) for a in (values[:999].copy(), arguments[at : at + 999])]
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@on_each
@pytest.mark.parametrize("columns", [100, 111])
def test_rows_are_the_same_wherever_they_begin(machine: Make, columns: int) -> None:
    """Rows agree bit for bit, both in vectors that are known to be full and in others."""

    def call(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True), x.sum(axis=1)

    size = 9 * columns
    module, _ = scheduled(traced(call, some(9, columns))[0])
    values = (np.random.default_rng(0).random(size) - 0.5).astype("f4")
    results = []
    for at in range(4):
        arguments = some(size + 4)
        arguments[at : at + size] = values
        results.append(_launched(machine, module, arguments[at : at + size].reshape(9, columns), (9, columns), (9,)))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def _launched(machine: Make, module: Any, array: Any, *shapes: tuple[int, ...]) -> Sequence[Any]:
    """Return the results of a program's one kernel on an array, whose strides are kept."""
    (kernel,) = emitted(module)
    built = machine([kernel])
    sizes = {f"s{k}": size for k, size in enumerate(array.shape)}
    results = [np.zeros(shape, "f4") for shape in shapes]
    program = module.functions[0]
    (launch,) = [i for i in program.body.instructions if i.op.name == "launch"]
    by_value = {**dict.fromkeys(program.parameters, array), **dict(zip(program.body.results, results, strict=True))}
    arguments = [by_value[v] if v in by_value else np.zeros(array.shape, "f4") for v in launch.operands]
    assert launch_all(built, kernel, arguments, sizes) == 0
    return results


def test_what_is_packed_is_seen_in_the_text() -> None:
    x = some(64, 256)
    assert re.findall(r"pb_read<(\d)>", text_of(lambda a, b: a * b, some(50), some(50))) == ["4", "4"]
    assert re.findall(r"pb_read<(\d)>", text_of(lambda a: a * 2, some(50, dtype="f2"))) == ["8"]
    assert "pb_read" not in text_of(lambda a: a[::-1] * 2, some(50))
    assert text_of(lambda a: np.exp(a - a.max(axis=1, keepdims=True)), x).count("pb_read<4>") == 2
    assert text_of(lambda a: np.exp(a - a.max(axis=1, keepdims=True)), x).count("pb_packs<4>(") == 2
    shifted = text_of(lambda a: (a[:, 1:] - a[:, :-1]).sum(axis=1), x)
    assert "pb_read<4>" in shifted and "pb_packs" not in shifted


def test_blocks_that_cost_nothing_are_many() -> None:
    """More than a device has room for, so that it is busy to the end, but not where each has memory, or little to do."""

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    (rows,), (total, _) = (emitted(scheduled(traced(f, some(4, 64))[0])[0])[0].launches for f in (softmax, np.sum))
    assert [rows.blocks({"s0": n, "s1": 4096}) for n in (100, 1000, 4096, 8192, 1 << 16)] == [100, 1000, 1024, 2048, 8192]
    assert rows.blocks({"s0": 1 << 16, "s1": 40000}) == 512
    assert [rows.threads_for({"s0": n, "s1": 4096}) for n in (10, 1000, 1 << 16)] == [256, 256, 128]
    assert [rows.threads_for({"s0": n, "s1": 700}) for n in (10, 1 << 16)] == [128, 64]
    assert [total.blocks({"s0": 1 << n}) for n in (19, 21, 24, 28)] == [512, 1024, 4096, 8192]


def test_rows_in_shared_memory_take_no_other() -> None:
    (kernel,) = emitted(scheduled(traced(lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), some(4, 64))[0])[0])
    launches = Launches(name=kernel.name, launches=kernel.launches, scratch=kernel.scratch)

    def bytes_of(columns: int, room: int) -> list[int]:
        result = sized_kernel(launches, {"s0": 100, "s1": columns}, lambda *_: None, room << 10)
        return [size for _, size in result.scratch]

    assert [bytes_of(4096, 48), bytes_of(40000, 48), bytes_of(40000, 227)] == [[4], [100 * 40000 * 4], [4]]


def test_few_elements_have_a_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_launch, "PACKED_FROM", cuda_launch.MOST_THREADS)
    (kernel,) = emitted(scheduled(traced(lambda a: a * 2, some(50))[0])[0])
    (launch,) = kernel.launches
    assert (launch.width_for({"s0": 5000}), launch.blocks({"s0": 5000})) == (1, 20)
    assert (launch.width_for({"s0": 1 << 20}), launch.blocks({"s0": 1 << 19})) == (4, 512)


@on_each
@pytest.mark.parametrize("columns", [12288, 12000, 40000])
def test_long_rows_are_in_shared_memory_if_it_holds_them(machine: Make, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have the same bits wherever they are. Next to 12,288 numbers of 4 bytes nothing has room in 48 KB."""

    def call(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    function, values = traced(call, some(2, columns) / 50)
    (kernel,) = emitted(scheduled(function)[0])
    sizes = {"s0": 2, "s1": columns}
    (launch,) = kernel.launches
    assert [bool(launch.shared(sizes, room << 10)) for room in (48, 227)] == [columns < 12288, True]
    assert launch.blocks(sizes) == 2
    result = []
    for room in (48, 227):
        monkeypatch.setattr(Machine, "room", room << 10)
        result.append(run_program(machine, function, values))
    assert_same(result[0], result[1])
    assert_same(result[0], expected(function, values), bitwise=False, rtol=1e-5)
