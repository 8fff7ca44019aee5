"""Native calls that write into arrays of the caller's, donate them or fill them: arrays that share memory, are
read-only or strided are handled as in Python."""

import gc
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.fastcall import describe as fastcall_describe
from pullback.runtime.fastcall import abi
from tests.runtime.fastcall.test_native_calls import no_python, same, warm

pytestmark = pytest.mark.skipif(bool(abi.problem()), reason=f"calls are plain here: {abi.problem()}")

TABLE = np.zeros(3)


def add(x: Any, y: Any) -> None:
    x += y


def shift(x: Any, y: Any) -> Any:
    x[1:] = y[:-1]
    return np.sum(x)


def both(x: Any, y: Any) -> Any:
    x *= 2
    y[0] = 7
    return x, y


def swap(x: Any, y: Any) -> None:
    old = x.copy()
    x[...] = y
    y[...] = old


def every_other(x: Any, y: Any) -> Any:
    x[::2] += y[::2]
    return y * 2


def returned(x: Any, y: Any) -> Any:
    x += 1
    return x


def fill(x: Any, y: Any) -> Any:
    x[...] = 5
    return y


def outside(x: Any, y: Any) -> Any:
    TABLE[:] = np.sum(x) + y[:3]


def plain(x: Any, y: Any) -> Any:
    return x * 2 + y


def two(x: Any, y: Any) -> Any:
    return y - x, x + 1


WRITES = (add, shift, both, swap, every_other, returned, fill, outside)


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("step", [1, 2])
def test_calls_that_write_are_native(function: Callable[..., Any], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(function)
    warm(compiled, np.arange(8.0)[::step], np.ones(8)[::step])
    x, y, a, b = (np.arange(8.0)[::step] + k if step == 1 else (np.arange(8.0) + k)[::step] for k in (0, 3, 0, 3))
    with no_python(monkeypatch):
        for _ in range(10):
            assert same(compiled(x, y), function(a, b))
            assert same(x, a) and same(y, b)


def test_a_number_of_rank_0_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(n: Any) -> None:
        n[...] = n + 1

    compiled = pb.jit(count)
    n = np.array(0)
    warm(compiled, n)
    with no_python(monkeypatch):
        for _ in range(5):
            compiled(n)
    assert n == 7


def test_containers_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(parameters: Any, rate: float) -> Any:
        for p in parameters.values():
            p -= rate
        return parameters

    compiled = pb.jit(step)
    parameters = {"w": np.ones((2, 3)), "b": np.zeros(3)}
    warm(compiled, parameters, 0.5)
    with no_python(monkeypatch):
        result = compiled(parameters, 0.5)
    assert result["w"] is parameters["w"] and parameters["w"][0, 0] == -0.5 and parameters["b"][0] == -1.5


def test_donated_arguments_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(lambda p, g: {k: p[k] - 0.5 * g[k] for k in p}, donate=0)
    p, g = {"a": np.ones(3), "b": np.ones((2, 2))}, {"a": np.ones(3), "b": np.ones((2, 2))}
    p = compiled(p, g)
    while fastcall_describe.is_underway():
        time.sleep(0.01)
    p = compiled(p, g)
    with no_python(monkeypatch):
        for k in range(5):
            before = p
            p = compiled(before, g)
            assert p["a"] is before["a"] and p["b"] is before["b"] and p["a"][0] == -0.5 * (k + 1)


def test_results_go_to_arrays_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(lambda x: {"y": x * 2, "s": np.sum(x), "again": x})
    x, whole = np.arange(3.0), np.zeros((3, 4))
    outs = [{"y": np.zeros(3), "s": None, "again": np.zeros(3)}, {"y": whole[:, 1], "s": np.zeros(()), "again": None}]
    for out in outs:
        for _ in range(3):
            compiled.into(out, x)
            while fastcall_describe.is_underway():
                time.sleep(0.01)
    with no_python(monkeypatch):
        for out in outs:
            result = compiled.into(out, x + 1)
            assert (
                same(result["y"], 2 * (x + 1)) and same(np.asarray(result["s"]), np.array(6.0)) and same(result["again"], x + 1)
            )
            assert all(result[k] is out[k] for k in out if out[k] is not None)
    assert whole.sum() == 12.0 and whole[0, 1] == 2.0


def test_out_may_be_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(two)
    x, y = np.ones(4), np.arange(4.0)
    for _ in range(3):
        compiled.into((x, y), x, y)
        while fastcall_describe.is_underway():
            time.sleep(0.01)
    x[:], y[:], base = 1.0, np.arange(4.0), np.arange(8.0)
    expected = two(x, y), two(base[:4], base[2:6])
    with no_python(monkeypatch):
        result = compiled.into((x, y), x, y)
        assert result[0] is x and result[1] is y and same(result, expected[0])
        assert same(compiled.into((base[1:5], np.zeros(4)), base[:4], base[2:6])[0], expected[1][0])


def test_out_that_is_wrong_raises_as_ever() -> None:
    compiled = pb.jit(lambda x: x * 2)
    x, out = np.arange(3.0), np.zeros(3)
    for _ in range(4):
        assert compiled.into(out, x) is out
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled.into(fixed, x)
    with pytest.raises(ValueError, match="found <f4"):
        compiled.into(np.zeros(3, np.float32), x)
    with pytest.raises(TypeError):
        compiled.into([out], x)
    assert same(compiled.into(x, x), np.arange(3.0) * 2)

    @pb.jit
    def outer(x: Any) -> Any:
        return compiled.into(out, x)

    with pytest.raises(pb.TraceError, match="calls from outside"):
        outer(x)


def test_an_argument_that_is_returned_is_as_it_was() -> None:
    """If an array of out shares memory with a returned argument, the result is a copy."""
    compiled = pb.jit(lambda a, b: (b, a * 3))
    for k in range(6):
        block = np.arange(8.0) + k
        a, b, out = block[:4], block[2:6], block[1:5]
        expected = b.copy(), a * 3
        result = compiled.into((None, out), a, b)
        assert same(result[0], expected[0]) and result[1] is out and same(out, expected[1])
        while fastcall_describe.is_underway():
            time.sleep(0.01)
    separate = np.zeros(4)
    for _ in range(6):
        result = compiled.into((None, separate), a, b)
        assert result[0] is b and result[1] is separate and same(separate, a * 3)


# random views of one array, in calls through Python and in native ones


def view(base: Any, pick: random.Random) -> Any:
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    views = [
        base[:4], base[2:6], base[0:8:2], base[1:9:2], base[3::-1], np.arange(4.0) + 1, fixed, base[pick.randrange(8) :][:4],
        np.lib.stride_tricks.as_strided(base, (4,), (8 * pick.choice([0, 1, 3]),)),
    ]  # fmt: skip
    return pick.choice(views)


def copied(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    """Arrays that share memory as these do, and what they are views of."""
    roots: dict[int, Any] = {}
    built: dict[int, Any] = {}
    for x in arrays:
        root = x
        while root.base is not None:
            root = root.base
        whole = roots.setdefault(id(root), root.copy())
        start = x.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        if id(x) not in built:
            built[id(x)] = np.ndarray(x.shape, x.dtype, whole, start, x.strides)
            built[id(x)].flags.writeable = x.flags.writeable
    return [built[id(x)] for x in arrays], list(roots.values())


def outcome(call: Callable[..., Any], arrays: list[Any], *args: Any) -> Any:
    try:
        result = call(*args)
    except (pb.TraceError, ValueError) as error:
        return type(error).__name__, str(error).partition("\n")[0].partition(": ")[2]
    results = result if isinstance(result, tuple) else (result,)
    places = [[k for k, x in enumerate(arrays) if x is r] for r in results]
    return [None if r is None else r.tolist() for r in results], places


@pytest.mark.parametrize("seed", range(8))
def test_arrays_that_share_memory(seed: int) -> None:
    pick = random.Random(seed)
    writing = [pb.jit(f) for f in WRITES[:7]]
    donating = [pb.jit(plain, donate=0), pb.jit(plain, donate=(0, 1)), pb.jit(two, donate=(0, 1))]
    for f in (*writing, *donating):
        warm(f, np.arange(4.0), np.ones(4))
    into = pb.jit(plain)
    for _ in range(3):
        into.into(np.zeros(4), np.ones(4), np.ones(4))
    for k in range(150):
        base = np.arange(24.0) + k
        arguments = [view(base, pick) for _ in range(3)]
        if pick.random() < 0.2:
            arguments[1] = arguments[0]
        f = pick.choice([*writing, *donating, into])
        (a, roots), (b, others) = copied(arguments), copied(arguments)
        if f is into:
            expected, result = outcome(f._into, a, a[2], a[:2], {}), outcome(f.into, b, b[2], *b[:2])
        else:
            expected, result = outcome(type(f).__call__, a, f, *a[:2]), outcome(f, b, *b[:2])
        assert result == expected
        if f not in donating:
            assert all(map(np.array_equal, roots, others))


def test_references_are_exact() -> None:
    compiled = [pb.jit(f) for f in WRITES]
    donating = pb.jit(plain, donate=0)
    x, y, out = np.zeros(8)[::2], np.ones(4), np.zeros(4)
    for f in (*compiled, donating):
        warm(f, x, y)
    for _ in range(4):
        compiled[0].into(None, x, y)
        donating.into(out, x, y)
    gc.collect()
    before = [sys.getrefcount(a) for a in (x, y, out, TABLE)]
    for _ in range(300):
        for f in (*compiled, donating):
            f(x, y)
        donating.into(out, x, y)
    assert all(abs(sys.getrefcount(a) - n) <= 2 for a, n in zip((x, y, out, TABLE), before))


def test_a_call_that_raises_writes_nothing() -> None:
    def pick(x: Any, i: Any) -> Any:
        x += 1
        return x[i]

    compiled = pb.jit(pick)
    x, inside = np.zeros(3), np.array([0, 2])
    warm(compiled, x, inside)
    x[:] = 0
    with pytest.raises(IndexError):
        compiled(x, np.array([0, 9]))
    assert same(x, np.zeros(3))


def test_other_threads_go_on_during_long_calls() -> None:
    def slow(x: Any) -> None:
        x += np.sin(np.cos(np.exp(-x)))

    compiled = pb.jit(slow)
    x = np.ones(3_000_000)
    warm(compiled, x)
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    thread = threading.Thread(target=tick)
    try:
        thread.start()
        compiled(x)
        during = ticks
        compiled(x)
        assert ticks > during
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()
