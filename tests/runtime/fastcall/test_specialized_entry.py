"""A small program's own entry: which programs get one, when, and that it gives what the generic entry gives."""

import dataclasses
import gc
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.fastcall import describe as fastcall_describe
from pullback.runtime.fastcall import abi, specialized_entry
from pullback.runtime.fastcall.records import Record

pytestmark = pytest.mark.skipif(bool(abi.problem()), reason=f"calls are plain here: {abi.problem()}")

Function = Callable[..., Any]


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def chosen(monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    monkeypatch.setenv(abi.VARIABLE, tier)


def record_of(compiled: Any) -> Record:
    (record,) = compiled._entries.dispatch.table.records
    result: Record = record
    return result


def is_fused(compiled: Any) -> bool:
    record = record_of(compiled)
    return record["attempt"] != record.words["attempt"]


def bits(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: bits(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(map(bits, x))
    return (type(x), x.dtype, x.shape, x.tobytes()) if isinstance(x, np.ndarray | np.generic) else x


Point = namedtuple("Point", "x y")
RATES: dict[str, Any] = {"rate": 2.5, "other": object(), "table": [np.arange(3.0)]}


@dataclasses.dataclass
class Pair:
    x: Any
    y: Any


def add_one(x: Any) -> None:
    x += 1.0


SMALL: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "value and gradient": (rosenbrock, (np.linspace(-1.0, 1.0, 2),)),
    "float32": (lambda x, y: (x @ y, np.sum(x)), (np.ones((3, 3), np.float32), np.arange(3, dtype=np.float32))),
    "number": (lambda x, k: np.sin(x) * k, (np.arange(3.0), 2.5)),
    "numbers alone": (lambda x, n: x * n + 1j, (1.5, 3)),
    "rank 0": (lambda x: x * 2, (np.array(3.0),)),
    "containers": (lambda p: {"a": [p["u"][0] * 2], "b": (p["v"], p["v"] + 1)}, ({"u": [np.ones(2)], "v": np.zeros(3)},)),
    "returned": (lambda x: (x, x * 2, None, "text"), (np.ones(2),)),
    "index": (lambda x, i: x[i] + 1, (np.arange(5.0), np.array([1, 4]))),
    "strides": (lambda x: np.cumsum(x) * x, (np.arange(20.0)[::-2],)),
    "special values": (lambda x: (np.sqrt(x), np.exp(x), x / x[::-1]), (np.array([-1.0, 0.0, -0.0, np.inf, np.nan, 1e-310]),)),
    "integers": (lambda x: (x // 3, x % 3, np.max(x)), (np.arange(-5, 6),)),
    "nothing": (lambda x: (x + 1, np.sum(x)), (np.zeros((0, 3)),)),
    "no results": (lambda x: (x, 1), (np.ones(2),)),
    "a dict from outside": (lambda x: x * RATES["rate"] + RATES["table"][0], (np.ones(3),)),
    "keys that are ints": (lambda p: p[1] * p[2], ({1: np.ones(2), 2: 3.0},)),
}


def compiled_anew(name: str, function: Function) -> Any:
    """A copy compiled, which shares nothing with others."""
    copy = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    return pb.value_and_grad(copy) if name == "value and gradient" else pb.jit(copy)


OTHERS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "large": (lambda x: x * 2, (np.ones(100_000),)),
    "a loop that asks for Ctrl-C": (lambda x: pb.fori_loop(0, 5, lambda i, c: np.tanh(c) * 2, x), (np.linspace(0.0, 1.0, 3),)),
    "a callback": (lambda x: pb.callback(lambda v: v * 2, x, x), (np.ones(3),)),
    "a result that Python builds": (lambda x: x.reshape(2, 2), (np.ones(4),)),
}


@pytest.mark.parametrize("name", SMALL)
def test_results_are_those_of_the_generic_entry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, args = SMALL[name]
    chosen(monkeypatch, "native")
    generic = compiled_anew(name, function)
    expected = bits(generic(*args))
    assert bits(generic(*args)) == expected and not is_fused(generic)
    chosen(monkeypatch, "fused")
    own = compiled_anew(name, function)
    own(*args)
    assert is_fused(own) or record_of(own).instance is None
    for _ in range(3):
        assert bits(own(*args)) == expected


@pytest.mark.parametrize("name", OTHERS)
def test_programs_that_get_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, args = OTHERS[name]
    chosen(monkeypatch, "fused")
    compiled = pb.jit(function)
    first = bits(compiled(*args))
    assert bits(compiled(*args)) == first and not is_fused(compiled)


# By name: what is compiled, a call's arguments, and what is compared of its result and them.
TAKEN_APART: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "an argument that is written": (pb.jit(add_one), lambda: (np.ones(3),), lambda r, x: (r, x)),
    "the same, elements apart": (pb.jit(add_one), lambda: (np.ones(6)[::2],), lambda r, x: (r, x)),
    "a donated argument": (pb.jit(lambda x, y: x + y, donate=0), lambda: (np.ones(3), np.ones(3)), lambda r, x, y: (r, y)),
    "a dataclass, in": (pb.jit(lambda p: p.x * p.y), lambda: (Pair(np.ones(2), 3.0),), lambda r, p: r),
    "a dataclass, out": (pb.jit(lambda x: Pair(x * 2, x + 1)), lambda: (np.ones(2),), lambda r, x: (type(r), r.x, r.y)),
    "a namedtuple, out": (pb.jit(lambda x: Point(x * 2, x + 1)), lambda: (np.ones(2),), lambda r, x: (type(r), *r)),
    "an OrderedDict": (pb.jit(lambda p: p["a"] * 2), lambda: (OrderedDict(a=np.ones(2)),), lambda r, p: r),
    "a slice": (pb.jit(lambda x, s: x[s] * 2), lambda: (np.arange(4.0), slice(1, 3)), lambda r, x, s: r),
}


@pytest.mark.parametrize("name", TAKEN_APART)
def test_what_only_the_generic_entry_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, make, shown = TAKEN_APART[name]
    chosen(monkeypatch, "fused")
    result = []
    for _ in range(5):
        args = make()
        result.append(bits(shown(compiled(*args), *args)))
    assert all(each == result[0] for each in result)
    records = compiled._entries.dispatch.table.records
    assert records and all(record["attempt"] == record.words["attempt"] for record in records)


def test_a_result_in_an_array_of_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "fused")
    compiled = pb.jit(lambda x: x * 2.0)
    x, out = np.arange(3.0), np.zeros(3)
    for k in range(5):
        assert compiled.into(out, x + k) is out and np.array_equal(out, (x + k) * 2)
        assert np.array_equal(compiled(x + k), out)
    assert is_fused(compiled)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 40, 65])
def test_extents(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are added up in one order, whatever is known of extents."""
    x = np.random.default_rng(n).normal(size=n)
    result = []
    for tier in ("native", "fused"):
        chosen(monkeypatch, tier)
        compiled = pb.value_and_grad(lambda x: rosenbrock(x) + np.sum(np.exp(x)) / np.sum(x * x))
        compiled(x)
        result.append(bits(compiled(x)))
        assert is_fused(compiled) is (tier == "fused")
    assert result[0] == result[1]


def test_an_entry_is_made_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "auto")
    monkeypatch.setattr(specialized_entry, "LOOK_AFTER", 20)
    monkeypatch.setattr(specialized_entry, "MAKE_AFTER", 30)
    monkeypatch.setattr(specialized_entry, "MAX_NS", 10**9)
    scale = 3.0 + np.random.default_rng().random()
    built = []
    for _ in range(2):
        compiled = pb.jit(lambda x: np.sum(x * 2.5) ** 2 - np.cosh(x) * scale)
        expected = bits(compiled(np.ones(3)))
        while fastcall_describe.is_underway():
            time.sleep(0.01)
        count = 0
        while count < 100_000 and not (count > 2 and is_fused(compiled)):
            assert bits(compiled(np.ones(3))) == expected
            count += 1
            time.sleep(0 if count < 60 else 0.001)
        assert is_fused(compiled)
        built.append(count)
    assert built[0] >= 50 and built[1] < built[0] and built[1] >= 20


def multiplied(table: Any) -> Any:
    return pb.jit(lambda x: np.sum(x * table))


def test_the_text_is_one_for_all_functions_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "native")
    texts = []
    for value in (2.0, 3.0):
        compiled = multiplied(np.full(3, value))
        compiled(np.ones(3))
        texts.append(specialized_entry.text_of(record_of(compiled)))
    assert texts[0] == texts[1]
    assert str(id(np.ndarray)) not in texts[0]


def test_what_is_not_expected_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "fused")
    namespace: dict[str, Any] = {"shift": 1.0}
    exec("def f(x, k):\n    return x * k + shift", namespace)
    compiled = pb.jit(namespace["f"])
    x = np.arange(3.0)
    compiled(x, 2.0)
    assert is_fused(compiled)
    for other in (np.ones(4), np.ones((3, 1)), np.ones(3, np.float32), np.ones(6)[::2], x.astype(">f8"), 2.0):
        assert np.array_equal(compiled(other, 2.0), np.asarray(other) * 2 + 1)
    assert np.array_equal(compiled(x, k=3.0), 3 * x + 1) and np.array_equal(compiled(x, 3), 3 * x + 1)
    namespace["shift"] = 5.0
    assert np.array_equal(compiled(x, 2.0), 2 * x + 5)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled(x)


def test_what_is_outside_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "fused")
    compiled = compiled_anew("", SMALL["a dict from outside"][0])
    x = np.ones(3)
    assert compiled(x).tolist() == compiled(x).tolist() == [2.5, 3.5, 4.5] and is_fused(compiled)
    for key, value, expected in (
        ("other", 3, [2.5, 3.5, 4.5]), ("rate", 4.0, [4.0, 5.0, 6.0]), ("table", [np.zeros(3), 1], [4.0, 4.0, 4.0]),
        ("table", [np.ones(1)], [5.0, 5.0, 5.0]), ("rate", np.arange(3.0), [1.0, 2.0, 3.0]),
    ):  # fmt: skip
        monkeypatch.setitem(RATES, key, value)
        assert compiled(x).tolist() == compiled(x).tolist() == expected


def test_errors_and_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "fused")
    compiled = pb.jit(lambda x, i: x[i] * 2)
    x = np.arange(3.0)
    compiled(x, np.array([0, 2]))
    assert is_fused(compiled)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        compiled(x, np.array([0, 7]))
    assert compiled(x, np.array([1, 2])).tolist() == [2.0, 4.0]

    def interrupt(record: Any) -> None:
        raise KeyboardInterrupt

    chosen(monkeypatch, "auto")
    monkeypatch.setattr(specialized_entry, "_warm", interrupt)
    monkeypatch.setattr(specialized_entry, "LOOK_AFTER", 3)
    stopped = pb.jit(lambda x: x * 2.0)
    stopped(x)
    while fastcall_describe.is_underway():
        time.sleep(0.01)
    stopped(x)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(4):
            stopped(x)
    assert stopped(x).tolist() == [0.0, 2.0, 4.0]


def test_many_threads_in_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, "fused")
    compiled = pb.value_and_grad(rosenbrock)
    x = np.linspace(-1.0, 1.0, 5)
    expected = {k: bits(compiled(x * k)) for k in range(8)}
    assert is_fused(compiled)
    wrong: list[int] = []

    def work(k: int) -> None:
        own = x * k
        if any(bits(compiled(own)) != expected[k] for _ in range(3000)):
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", SMALL)
def test_references_over_many_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 calls, and 2,000 that fail, leave every count as it was, but for what other threads of the process refer to."""
    function, args = SMALL[name]
    chosen(monkeypatch, "fused")
    compiled = compiled_anew(name, function)
    compiled(*args)
    watched: list[Any] = [*args, compiled, np.ndarray, np.float64, np.dtype(float), np.dtype(np.float32), (), None, "text"]
    watched += [v for a in args if isinstance(a, dict) for v in a.values()]
    for _ in range(10):
        compiled(*args)
    gc.collect()
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(100_000):
        compiled(*args)
    for _ in range(2_000):
        with pytest.raises(TypeError):
            compiled(*args, *args, *args, None)
    gc.collect()
    assert all(abs(a - b) <= 500 for a, b in zip([sys.getrefcount(x) for x in watched], before, strict=True))


@pytest.mark.long
def test_memory_checks_of_the_allocators() -> None:
    """A process whose allocators look for writes past the end and into what was freed."""
    code = """
import numpy as np, pullback as pb
f = pb.value_and_grad(lambda p: np.sum(np.sin(p["a"]) * p["b"][0]) ** 2)
for n in (1, 2, 5, 9):
    p = {"a": np.ones(n), "b": [np.arange(float(n)), 2.0]}
    first = f(p)
    for _ in range(3000):
        assert str(f(p)) == str(first) if _ % 500 == 0 else f(p)
print("done")
"""
    environment = {"PYTHONMALLOC": "debug", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", abi.VARIABLE: "fused"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr
