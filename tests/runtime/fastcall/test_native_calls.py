"""Native calls: the same answers, errors and references as calls through Python, and which calls are native."""

import builtins
import dataclasses
import functools
import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiled import function as compiled_function
from pullback.fastcall import describe as fastcall_describe
from pullback.runtime.fastcall import abi

pytestmark = pytest.mark.skipif(bool(abi.problem()), reason=f"calls are plain here: {abi.problem()}")

Point = namedtuple("Point", "x y")


@pytest.fixture(autouse=True, params=["auto", "fused"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Calls take the generic entry, or one of each signature's own from the second call on."""
    chosen: str = request.param
    monkeypatch.setenv(abi.VARIABLE, chosen)
    return chosen


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any = 2.0


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str


class Segment:
    """A registered class."""

    def __init__(self, start: Any, end: Any, name: str = "") -> None:
        self.start, self.end, self.name = start, end, name


pb.tree.register(Segment, lambda s: ((s.start, s.end), s.name), lambda name, ends: Segment(*ends, name))


class Special(np.ndarray):
    pass


SCALE = 3.0
TABLE = np.arange(3.0)
PAST = OrderedDict(x=np.ones(3))


@contextmanager
def no_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No call may be looked at in Python."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("a call went through Python")

    with monkeypatch.context() as patch:
        patch.setattr(compiled_function, "signature", refuse)
        yield


def warm(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of the first call; the next ones are native, if they can be."""
    first = function(*args, **kwargs)
    while fastcall_describe.is_underway():
        time.sleep(0.01)
    function(*args, **kwargs)
    return first


def same(a: Any, b: Any) -> bool:
    """Return whether two results have the same types and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Pair | Segment):
        return same(list(vars(a).values()), list(vars(b).values()))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


def halves(x: Any) -> Any:
    return x / 2


def exchanged(p: Any, q: Any, x: Any) -> Any:
    pairs = (p, (q, 0.5))
    for _ in range(4):
        for _ in range(4):
            pairs = (pairs[1][0], (pairs[0], sum(w for w in x)))
    return p + x[0], pairs, np.sum(x)


def closed(scale: Any) -> Callable[[Any], Any]:
    return lambda x: np.sum(x * scale) + SCALE


def apart(x: Any, step: int) -> Any:
    """Return an equal array with a stride of ``step`` rows."""
    result = np.repeat(x, abs(step), axis=0)[:: abs(step)]
    return result if step > 0 else np.asfortranarray(result[::-1])[::-1]


NATIVE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "float64": (lambda x: x * 2, (np.arange(3.0),), {}),
    "float32": (lambda x: (x * 2, np.sum(x)), (np.ones((2, 3), np.float32),), {}),
    "int64": (lambda x: x // 2 + np.max(x), (np.arange(5),), {}),
    "bool": (lambda x: (~x, np.any(x)), (np.array([True, False]),), {}),
    "complex": (lambda x: (x * 1j, np.sum(x)), (np.array([1 + 2j, 3.0]),), {}),
    "empty": (lambda x: (x + 1, np.sum(x)), (np.zeros((0, 3)),), {}),
    "strided": (lambda x: x * 2, (np.arange(10.0)[::-3],), {}),
    "transposed": (lambda x: x + 1, (np.arange(6.0).reshape(2, 3).T,), {}),
    "rank 0": (lambda x: x * 2, (np.array(3.0),), {}),
    "readonly": (lambda x: x * 2, (np.frombuffer(b"abcdefgh"),), {}),
    "numpy scalar": (lambda x: x * 2, (np.float32(1.5),), {}),
    "numpy bool": (lambda x, y: np.where(x, y, -y), (np.bool_(True), np.arange(2.0)), {}),
    "numpy complex": (lambda x: x * 2, (np.complex64(1 + 2j),), {}),
    "numbers": (lambda x, y, z, w: x * y + (z * np.ones(2)) * w, (1.5, 7, True, 2j), {}),
    "tuple": (lambda p: p[0] * p[1], ((np.arange(3.0), 2.0),), {}),
    "nested": (lambda p: {"a": [p["u"][0] * 2, (p["v"],)]}, ({"u": [np.ones(2)], "v": np.zeros(1)},), {}),
    "namedtuple": (lambda p: p.x - p.y, (Point(np.ones(2), 3.0),), {}),
    "namedtuple out": (lambda x: Point(x, x * 2), (np.ones(2),), {}),
    "empty containers": (lambda p, x: ((), [], {}, x * 1), ((), np.ones(2)), {}),
    "keywords": (lambda x, *, y=1.0, z=2.0: x * y - z, (np.ones(2),), {"z": 5.0, "y": 3.0}),
    "defaults": (lambda x, y=2.0: x * y, (np.ones(2),), {}),
    "text": (lambda x, mode: x * (2 if mode == "double" else 3), (np.ones(2), "double"), {}),
    "none": (lambda x, y: x * (2 if y is None else 3), (np.ones(2), None), {}),
    "function": (lambda x, f: f(x), (np.ones(2), halves), {}),
    "static number": (lambda x, n: sum((x * k for k in range(n)), x), (np.ones(2), 4), {}),
    "dataclass": (lambda p: p.a * p.b, (Pair(np.ones(2), 3.0),), {}),
    "dataclass out": (lambda x: Pair(x * 2, Pair(x, x + 1)), (np.ones(2),), {}),
    "registered": (lambda s: s.end - s.start, (Segment(np.ones(2), 3.0, "s"),), {}),
    "registered out": (lambda x: Segment(x * 2, x + 1, "new"), (np.ones(2),), {}),
    "ordered": (lambda p: OrderedDict(b=p["a"] * 2), (OrderedDict(a=np.ones(2)),), {}),
    "with a default": (lambda p: defaultdict(list, a=p["a"] * 2), (defaultdict(list, a=np.ones(2)),), {}),
    "keys": (lambda p: {1: p[0] * 2, "a": p["a"]}, ({0: np.ones(2), "a": 1.0, b"b": 2},), {}),
    "subclass": (lambda x: x * 2, (np.ones(3).view(Special),), {}),
    "buffer": (lambda x: x * 2, (memoryview(np.ones(3)),), {}),
    "slice": (lambda x, s: x[s] * 2, (np.ones(4), slice(1, 3)), {}),
    "dtype": (lambda x, t: x.astype(t), (np.ones(2), np.dtype("f4")), {}),
    "class": (lambda x, t: x.astype(t), (np.ones(2), np.float32), {}),
    "names": (lambda x, s: x * len(s), (np.ones(2), frozenset("ab")), {}),
    "function of NumPy's": (lambda x, f: f(x), (np.ones(2), np.sin), {}),
    "reshaped view": (lambda x: x.reshape(-1) * 2, (np.ones((2, 6))[:, ::2],), {}),
    "returned argument times one": (lambda x, y=1.0: x * y, (np.ones(3),), {}),
    "global": (lambda x: x * SCALE + TABLE, (np.ones(3),), {}),
    "closure": (closed(np.arange(3.0)), (np.ones(3),), {}),
    "argument": (lambda x: x, (np.ones(3),), {}),
    "arguments": (lambda p: (p["a"], p["a"] * 2), ({"a": np.ones(3)},), {}),
    "copy": (lambda x: np.positive(x), (np.ones(3),), {}),
    "twice": (lambda x: (y := x * 2, y), (np.ones(3),), {}),
    "text out": (lambda x: (x * 2, "text", None, 3), (np.ones(3),), {}),
    "large": (lambda x: (x * 2, np.sum(x)), (np.ones(100_000),), {}),
    "large temporaries": (lambda x: np.cumsum(np.sort(x * 2))[::-1] * 2, (np.arange(50_000.0),), {}),
    "factorised": (lambda x: np.linalg.solve(x, x[0]), (np.eye(3) * 2,), {}),
    "loop": (lambda x: pb.fori_loop(0, 5, lambda i, c: c * 2, x), (np.ones(3),), {}),
    "while": (lambda x: pb.while_loop(lambda c: c < 100, lambda c: c * 2, x), (3.0,), {}),
    "selected": (lambda x: (x[x > 1], np.flatnonzero(x > 0), np.sum(x)), (np.array([3.0, -1, 2]),), {}),
    "nothing selected": (lambda x: x[x > 9], (np.arange(3.0),), {}),
    "rows selected": (lambda x: {"rows": x[x[:, 0] > 1]}, (np.arange(6.0).reshape(3, 2),), {}),
    "complex selected": (lambda x: x[x.real > 0] * 2, (np.array([1 + 2j, -3.0]),), {}),
    "distinct": (lambda x: np.unique(x), (np.array([3, 1, 3, 2]),), {}),
    "length of a value": (lambda x: np.zeros(x.max() + 1, np.int64), (np.array([3, 1]),), {}),
    "static number of NumPy's": (lambda x, n: sum((x * k for k in range(n)), x), (np.ones(2), np.int64(4)), {}),
    "builtins": (lambda x: x * len(x) + abs(x[0]) + max(2, int(x.size)), (np.ones(3),), {}),
}


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "among others"])
def test_calls_are_native(name: str, is_alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    function, args, kwargs = NATIVE[name]
    compiled = pb.jit(function)
    expected = warm(compiled, *args, **kwargs)
    if not is_alone:
        for step in (2, -3):
            others = [apart(a, step) if isinstance(a, np.ndarray) and a.ndim else a for a in args]
            warm(compiled, *others, **kwargs)
    with no_python(monkeypatch):
        for _ in range(10):
            assert same(compiled(*args, **kwargs), expected)


def test_numbers_beside_numbers_that_are_arguments_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, arguments = pb.jit(exchanged), (2.5, 3.5, np.arange(4.0))
    warm(compiled, *arguments)
    with no_python(monkeypatch):
        assert same(compiled(*arguments), exchanged(*arguments))


def test_gradients_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"w": np.ones((2, 3)), "b": 0.5}
    compiled = pb.value_and_grad(lambda p, x: np.mean(np.tanh(p["w"] @ x + p["b"])))
    expected = warm(compiled, parameters, np.arange(3.0))
    with no_python(monkeypatch):
        assert same(compiled(parameters, np.arange(3.0)), expected)
        assert same(functools.partial(compiled, parameters)(np.arange(3.0)), expected)
        assert same(list(map(compiled, [parameters], [np.arange(3.0)])), [expected])


def test_arrays_of_an_equal_dtype_that_is_another_object(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(lambda x: x * 2)
    warm(compiled, np.ones(3))
    other = np.ndarray(3, np.dtype("f8", copy=True), np.ones(3).data)
    with no_python(monkeypatch):
        assert same(compiled(other), np.full(3, 2.0))


def test_objects_of_several_kinds_are_the_same_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(lambda x: x * 2)
    arguments = [memoryview(np.ones(3)), np.ones(3)]
    for x in arguments:
        warm(compiled, x)
    with no_python(monkeypatch):
        assert all(same(compiled(x), np.full(3, 2.0)) for x in arguments)


def test_a_class_that_is_registered_later() -> None:
    class Late:
        def __init__(self, x: Any) -> None:
            self.x = x

    late = Late(np.ones(2))
    compiled = pb.jit(lambda x, late: x * (late.x if late is not None else 1))
    assert same(warm(compiled, np.ones(2), late), np.ones(2))
    pb.tree.register(Late, lambda late: ((late.x * 3,), None), lambda _, inside: Late(*inside))
    for _ in range(3):
        assert same(compiled(np.ones(2), late), np.full(2, 3.0))
    built = pb.jit(lambda x: Late(x * 2))
    assert isinstance(warm(built, np.ones(2)), Late)
    pb.tree.register(Late, lambda late: ((late.x,), None), lambda _, inside: (Late, *inside))
    assert type(built(np.ones(2))) is tuple


def test_explain_says_which_path_calls_take() -> None:
    x, both = np.ones(3), np.ones(6)
    fixed = np.ones(3)
    fixed.flags.writeable = False
    double, donating = pb.jit(lambda x: x * 2), pb.jit(lambda x, y: x + y, donate=0)
    assert double.explain(x).path == ""
    big, odd = x.astype(">f8"), np.frombuffer(b"0" * 25, "u1")[1:].view("f8")
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (double, (x,), "native"),
        (double, (odd,), "native"),
        (double, (big,), 'Python, since an array is in another byte order; convert it once, x.astype(x.dtype.newbyteorder("="))'),
        (donating, (x, x + 1), "native"),
        (donating, (both[:3], both[2:5]), "Python, since x and y may share memory, and one of them is written or donated; pass"),
        (donating, (fixed, x), "Python, since x is read-only, so that a copy is donated"),
        (pb.jit(lambda x, c: x, static_argnames=["c"]), (x, 1j), "Python, since a static value is a complex; use text, an int"),
        (pb.jit(debug=True)(lambda x: x * 2), (x,), "Python, since debug=True looks at each step first"),
        (pb.jit(check=True)(lambda x: x * 2), (x,), "Python, since check=True compares each call with a new trace"),
        (pb.jit(lambda x: x * PAST["x"]), (x,), "native, but what is read from outside is looked at in Python"),
    ]  # fmt: skip
    for function, args, expected in cases:
        function(*args)
        report = function.explain(*args)
        assert report.path.startswith(expected), report.path
        assert "path of warm calls: " + report.path[:20] in str(report)


def test_doctor_says_which_path_calls_take() -> None:
    code = """
import sys, numpy, scipy.linalg, scipy.special, llvmlite.binding, dataclasses, inspect
{change}
from pullback.cli.main import main
main(["doctor"])
"""
    unknown = "sys.version_info = (3, 99, 0, 'final', 0)"
    cases = {
        "": "native (PULLBACK_CALL_PATH=auto)",
        unknown: "plain (Python 3.99 was not tested (PULLBACK_CALL_PATH=native to use it all the same))",
        "sys._is_gil_enabled = lambda: False": "plain (a free-threaded or debug build of Python)",
    }
    for change, expected in cases.items():
        said = python(code.format(change=change), PULLBACK_CALL_PATH="")
        assert f"calls      {expected}" in said.splitlines()


def test_calls_that_stay_in_python_leave_one_record() -> None:
    compiled = pb.jit(lambda x, y: x + y, donate=0)
    x = np.ones(4)
    for _ in range(10):
        warm(compiled, x[:3], x[1:])
    assert len(compiled._entries.dispatch) == 1


def test_many_signatures_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(lambda x: np.sum(x) * 2)
    arrays = [np.ones(n) for n in range(150)]
    for x in arrays:
        warm(compiled, x)
    with no_python(monkeypatch):
        assert [compiled(x) for x in arrays] == [2.0 * n for n in range(150)]


def test_methods_and_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.w, self.scale = np.ones(3), scale

        @pb.jit
        def loss(self, x: Any) -> Any:
            return np.sum(x * self.w) * self.scale

    a, b = Model(2.0), Model(3.0)
    x = np.ones(3)
    for model in (a, b):
        warm(model.loss, x)
    with no_python(monkeypatch):
        assert (a.loss(x), b.loss(x)) == (6.0, 9.0)
        a.w = np.full(3, 2.0)
        assert a.loss(x) == 12.0
    a.scale = 5.0
    assert a.loss(x) == 30.0
    inner = vars(Model)["loss"]._for_methods()
    assert len(inner._entries.dispatch) == 1
    assert [Model(k).loss(x) for k in (0.5, 1.0, 1.5)] == [1.5, 3.0, 4.5]
    assert len(inner._entries.dispatch) == 1


def test_what_is_not_expected_goes_to_python() -> None:
    compiled = pb.jit(lambda x, y=1.0: x * y)
    warm(compiled, np.ones(3))
    swapped = np.ones(3).astype(">f8")
    for other in (np.ones(3, np.float32), np.ones((1, 3)), np.ones(4), np.ones(6)[::2], 2.0, [1.0, 2.0], swapped, np.array(1.0)):
        assert np.array_equal(compiled(np.asarray(other), 2.0), np.asarray(other) * 2)
        assert np.array_equal(compiled(np.asarray(other)), np.asarray(other))
    assert np.array_equal(compiled(np.ones(3).view(Special)), np.ones(3))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        compiled(np.ones(3), z=2.0)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        compiled(np.ones(3), 2.0, 3.0)


def test_numbers_that_do_not_fit() -> None:
    compiled = pb.jit(lambda n: n * 2)
    warm(compiled, 3)
    assert compiled(1 << 70) == 1 << 71
    assert compiled(5) == 10


def test_guards_are_checked() -> None:
    namespace: dict[str, Any] = {"np": np, "k": 2.0, "helper": lambda x: x + 1, "table": np.ones(3)}
    exec("def f(x):\n    return helper(x) * k + table", namespace)
    compiled = pb.jit(namespace["f"])
    x = np.zeros(3)
    assert same(warm(compiled, x), np.full(3, 3.0))
    for change, expected in (
        ({"k": 5.0}, 6.0), ({"helper": lambda x: x - 1}, -4.0), ({"table": np.zeros(3)}, -5.0), ({"k": 2}, -2.0),
    ):  # fmt: skip
        namespace.update(change)
        assert same(warm(compiled, x), np.full(3, expected))
        assert same(compiled(x), np.full(3, expected))
    namespace["table"][1] = 7.0
    assert same(compiled(x), np.array([-2.0, 5.0, -2.0]))
    del namespace["table"]
    with pytest.raises(NameError):
        compiled(x)


def test_equal_numbers_and_texts_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"np": np, "k": 0.25, "n": 1000, "mode": "sum of all"}
    exec("def f(x):\n    return (np.sum(x) if mode == 'sum of all' else x) ** k * range(n)[-1]", namespace)
    compiled = pb.jit(namespace["f"])
    expected = warm(compiled, np.ones(3))
    with no_python(monkeypatch):
        assert same(compiled(np.ones(3)), expected)
        namespace.update(k=float("0.25"), n=int("1000"), mode="".join(["sum of", " all"]))
        assert same(compiled(np.ones(3)), expected)
    namespace.update(mode="none")
    assert compiled(np.ones(3)).shape == (3,)
    namespace.update(mode="sum of all", n=1001)
    assert compiled(np.ones(3)) == pytest.approx(expected * 1000 / 999)


OUTSIDE: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "number in a dict": (lambda o: o["rate"], lambda: {"rate": 0.5, "n": 3}),
    "static number in a dict": (lambda o: sum(range(o["n"])), lambda: {"rate": 0.5, "n": 3}),
    "array in a list": (lambda o: o[0] + o[1], lambda: [np.ones(3), np.zeros(3)]),
    "deep": (lambda o: o["a"][1]["b"] * len(o["c"]), lambda: {"a": (1.5, {"b": np.ones(3)}), "c": [1, 2], 3: "text"}),
    "text": (lambda o: 2.0 if o["how"] == "twice" else 3.0, lambda: {"how": "twice"}),
    "function": (lambda o: o["f"](2.0), lambda: {"f": halves, "g": halves}),
    "from the end": (lambda o: o[-1], lambda: [1.0, 2.0]),
}


def changes(o: Any) -> Iterator[Callable[[], Any]]:
    """What changes a container of plain ones, arrays, functions and text, in place."""
    for key in list(o) if isinstance(o, dict) else range(len(o)):
        x = o[key]
        if isinstance(x, dict | list | tuple):
            yield from changes(x)
        if isinstance(o, tuple):
            continue
        news: list[Any] = [3.5, 4, np.arange(3.0) + 1, np.arange(3.0, dtype=np.float32), "other", lambda x: x + 3, [1, 2, 3]]
        for new in news:
            yield functools.partial(o.__setitem__, key, new)
        yield lambda x=x: x.__iadd__(1) if isinstance(x, np.ndarray) else None  # type: ignore[misc]
    yield lambda: o.clear() if hasattr(o, "clear") else None


@pytest.mark.parametrize("name", OUTSIDE)
def test_containers_outside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use, make = OUTSIDE[name]
    count = len(list(changes(make())))
    for k in range(count):
        o = make()

        def function(x: Any, use: Any = use, o: Any = o) -> Any:
            return x * use(o)

        compiled = pb.jit(functools.partial(function))
        expected = warm(compiled, np.ones(3))
        if k == 0:
            with no_python(monkeypatch):
                assert same(compiled(np.ones(3)), expected)
        list(changes(o))[k]()
        wanted = outcome(function, np.ones(3))
        for _ in range(3):
            result = outcome(compiled, np.ones(3))
            assert isinstance(result, Exception) if isinstance(wanted, Exception) else same(result, wanted)


class Counter:
    def __init__(self, *arguments: Any) -> None:
        self.total = np.zeros(*arguments)

    def add(self, x: Any) -> Any:
        self.total += 1
        return x * self.total


def test_arrays_outside_that_are_written_and_converted() -> None:
    """One of rank 0 is read as a number, one of another byte order as a copy: neither is what calls write into."""
    for arguments in ((), "i8"), ((3,), ">f8"), ((), ">i4"), ((3,), "f8"):
        counter = Counter(*arguments)
        total, x = counter.total, np.arange(3.0)
        compiled = pb.jit(counter.add)
        warm(compiled, x)
        for k in range(3, 9):
            np.testing.assert_array_equal(compiled(x), x * k)
            np.testing.assert_array_equal(total, np.full(*arguments[:1], k))


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:
        return error


def test_functions_in_a_trace_are_traced() -> None:
    inner = pb.jit(lambda x: np.sin(x))
    warm(inner, 1.0)
    outer = pb.grad(lambda x: inner(x) * 2)
    assert warm(outer, 1.0) == outer(1.0) == pytest.approx(2 * np.cos(1.0))


# references and memory


def counts(*objects: Any) -> list[int]:
    return [sys.getrefcount(x) for x in objects]


@pytest.mark.parametrize("name", NATIVE)
def test_references_are_exact(name: str) -> None:
    function, args, kwargs = NATIVE[name]
    compiled = pb.jit(function)
    warm(compiled, *args, **kwargs)
    for _ in range(8):
        compiled(*args, **kwargs)
    watched: list[Any] = [*args, *kwargs.values(), SCALE, TABLE, np.dtype(float), np.ndarray, compiled, function, (), np.float64]
    for x in (*args, *kwargs.values()):
        watched += x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else []
    gc.collect()
    gc.collect()
    before = counts(*watched)
    for _ in range(500):
        compiled(*args, **kwargs)
    gc.collect()
    assert all(abs(a - b) <= 2 for a, b in zip(counts(*watched), before, strict=True))


def test_memory_is_flat(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # An entry of its own that is made meanwhile takes memory, once.
    monkeypatch.setenv(abi.VARIABLE, "native" if tier == "auto" else tier)
    parameters = {"w": np.ones(4), "b": [np.zeros(2), 1.5]}
    compiled = pb.value_and_grad(lambda p, x: np.sum(p["w"] * x) + np.sum(p["b"][0]) * p["b"][1])
    x = np.ones(4)
    warm(compiled, parameters, x)
    tracemalloc.start()
    try:
        for _ in range(100):
            compiled(parameters, x)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100_000):
            compiled(parameters, x)
        assert tracemalloc.get_traced_memory()[0] - before < 4096
    finally:
        tracemalloc.stop()


def test_errors_are_those_of_python() -> None:
    compiled = pb.jit(lambda x, i: x[i] * 2)
    x, bad = np.arange(3.0), np.array([0, 7])
    warm(compiled, x, np.array([0, 1]))
    messages = set()
    gc.collect()
    before = counts(x, bad)
    for _ in range(20):
        with pytest.raises(IndexError) as result:
            compiled(x, bad)
        messages.add(str(result.value))
        frames = [entry.path for entry in result.traceback]
        assert not any("pullback/direct" in str(path) or "pullback/entry" in str(path) for path in frames)
        del result
    gc.collect()
    assert len(messages) == 1 and counts(x, bad) == before
    assert same(compiled(x, np.array([2, 2])), np.array([4.0, 4.0]))


def test_guards_on_values() -> None:
    compiled = pb.jit(guards=True)(lambda x: x * 2 if np.sum(x) > 0 else x * 3)
    for _ in range(6):
        assert same(compiled(np.ones(2)), np.full(2, 2.0))
        assert same(compiled(-np.ones(2)), np.full(2, -3.0))


def test_interrupts_while_something_outside_is_read() -> None:
    class Owner:
        fails = False

        @property
        def k(self) -> float:
            if self.fails:
                raise KeyboardInterrupt
            return 2.0

    owner = Owner()
    compiled = pb.jit(lambda x: x * owner.k)
    try:
        warm(compiled, np.ones(2))
    except pb.TraceError:
        return
    owner.fails = True
    with pytest.raises(KeyboardInterrupt):
        compiled(np.ones(2))


def test_programs_and_records_die_with_their_function() -> None:
    def make() -> Any:
        held = np.ones(5)
        return pb.jit(lambda x: x * held), weakref.ref(held)

    compiled, held = make()
    warm(compiled, np.ones(5))
    compiled(np.ones(5))
    gc.disable()
    try:
        del compiled
        assert held() is None
    finally:
        gc.enable()
    cycle = pb.jit(lambda x: x + 1)
    warm(cycle, 1.0)
    cycle.me = cycle
    gone = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert gone() is None


def test_a_function_that_goes_during_its_own_call() -> None:
    held: list[Any] = []

    def drop(x: Any) -> Any:
        held.clear()
        gc.collect()
        return x

    held.append(pb.jit(lambda x: pb.callback(drop, x, x) * 2))
    built = held[0]
    for _ in range(3):
        assert same(built(np.ones(3)), np.full(3, 2.0))
    held.append(built)
    del built
    assert same(held[0](np.ones(3)), np.full(3, 2.0))


def test_a_function_that_calls_itself_by_way_of_python() -> None:
    def again(x: Any) -> Any:
        return x if x[0] <= 0 else compiled(x - 1)

    compiled = pb.jit(lambda x: pb.callback(again, x, x) + 1)
    for n in (3.0, 3.0, 3.0, 6.0):
        assert compiled(np.array([n])) == n + 1


@pytest.mark.parametrize("n", [4, 40_000])
def test_threads(n: int) -> None:
    compiled = pb.jit(lambda p: {"y": np.sin(p["x"]) * p["k"], "s": np.sum(p["x"])})
    warm(compiled, {"x": np.ones(n), "k": 1.0})
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = np.full(n, float(seed))
        for _ in range(400 if n < 100 else 40):
            result = compiled({"x": x, "k": seed / 2})
            if (
                result["s"] != seed * n
                or result["y"][-1] != result["y"][0]
                or abs(result["y"][0] - np.sin(seed) * seed / 2) > 1e-12
            ):
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_list_that_another_thread_changes_during_the_call() -> None:
    compiled = pb.jit(lambda p: np.sum(np.sort(p[0]) * 2))
    n = 100_000
    arguments = [np.ones(n)]
    warm(compiled, arguments)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            arguments[0] = np.ones(n)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert all(compiled(arguments) == 2.0 * n for _ in range(100))
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child() -> None:
    compiled = pb.jit(lambda x: np.sum(x) * 2)
    warm(compiled, np.ones(3))
    child = os.fork()
    if not child:
        os._exit(0 if all(compiled(np.full(3, float(k))) == 6.0 * k for k in range(50)) else 1)
    assert os.waitpid(child, 0)[1] == 0


# which path is taken


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


CHECK = """
import numpy as np, pullback as pb
from pullback.runtime.fastcall import abi
{before}
f = pb.jit(lambda x: x * 2)
import time
from pullback.fastcall import describe as direct
results = [f(np.ones(2)).tolist() for _ in range(2)]
while direct.is_underway(): time.sleep(0.01)
results += [f(np.ones(2)).tolist() for _ in range(2)]
print(results[3], getattr(abi.Called, "__basicsize__", 0) > 16 and abi.is_native(f), direct.status())
"""


def test_the_path_may_be_chosen() -> None:
    assert python(CHECK.format(before=""), PULLBACK_CALL_PATH="plain") == "[2.0, 2.0] False plain (PULLBACK_CALL_PATH=plain)"
    assert python(CHECK.format(before=""), PULLBACK_CALL_PATH="native") == "[2.0, 2.0] True native (PULLBACK_CALL_PATH=native)"
    assert python(CHECK.format(before=""), PULLBACK_CALL_PATH="") == "[2.0, 2.0] True native (PULLBACK_CALL_PATH=auto)"
    code = "import pullback.runtime.fastcall.abi"
    with pytest.raises(subprocess.CalledProcessError) as result:
        python(code, PULLBACK_CALL_PATH="fast")
    assert "PULLBACK_CALL_PATH=fast: native, fused, plain or auto is expected" in result.value.stderr


@pytest.mark.parametrize("name", abi._TESTS)
def test_a_failed_test_of_the_interface_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(abi._TESTS, name, lambda: False)
    abi.problem.cache_clear()
    try:
        assert abi.problem() == f"this Python or NumPy keeps {name} elsewhere" == fastcall_describe.status()[7:-1]
    finally:
        monkeypatch.undo()
        abi.problem.cache_clear()
    assert not abi.problem()


def test_a_failed_test_of_the_interface_takes_the_plain_path() -> None:
    before = "abi.problem.cache_clear(); abi._TESTS['the fields of an array'] = lambda: False"
    expected = "[2.0, 2.0] False plain (this Python or NumPy keeps the fields of an array elsewhere)"
    assert python(CHECK.format(before=before), PULLBACK_CALL_PATH="") == expected


def test_the_call_path_is_no_ones_kernel() -> None:
    code = """
import numpy as np, pullback as pb
from pullback.runtime.fastcall import abi
from pullback.runtime.process import counters
f = pb.jit(lambda x: x * 2)
f(np.ones(2))
before = counters.snapshot()
import time
from pullback.fastcall import describe as direct
while direct.is_underway(): time.sleep(0.01)
for _ in range(4): f(np.ones(2))
after = counters.snapshot() - before
print(after.compiles, after.hits, after.disk_hits, abi.is_native(f))
"""
    assert python(code, PULLBACK_CALL_PATH="", PULLBACK_CACHE_DIR="off") == "0 0 0 True"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("sys.version_info = (3, 99, 0)", "Python 3.99 was not tested (PULLBACK_CALL_PATH=native to use it all the same)"),
        ("sys._is_gil_enabled = lambda: False", "a free-threaded or debug build of Python"),
    ],
)
def test_unknown_pythons_take_the_plain_path(change: str, reason: str) -> None:
    expected = f"[2.0, 2.0] False plain ({reason})"
    assert python(CHECK.format(before=f"import sys; abi.problem.cache_clear(); {change}"), PULLBACK_CALL_PATH="") == expected


def test_threads_add_signatures_at_once() -> None:
    compiled = pb.jit(lambda x: np.sum(x))
    wrong: list[Any] = []

    def work(first: int) -> None:
        for _ in range(3):
            for n in range(first, first + 24):
                if compiled(np.ones(n)) != n:
                    wrong.append(n)

    threads = [threading.Thread(target=work, args=(8 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_of_lengths_by_value_of_other_calls(tier: str) -> None:
    def parts(x: Any) -> Any:
        return x[x > 0], np.flatnonzero(x < 0), np.sum(x > 0)

    compiled, rng = pb.jit(parts), np.random.default_rng(0)
    assert compiled.explain(rng.normal(size=50)).path in ("", "native")
    warm(compiled, rng.normal(size=50))
    for shift in (-4, -1, 0, 1, 4):
        for x in rng.normal(size=(20, 50)) + shift:
            assert same(compiled(x), parts(x))


def test_a_result_of_a_length_by_value_for_which_there_is_no_memory() -> None:
    compiled = pb.jit(lambda x: np.zeros(x.max(), np.int64))
    assert same(warm(compiled, np.array([3, 2])), np.zeros(3, np.int64))
    for _ in range(3):
        with pytest.raises(MemoryError, match="Unable to allocate"):
            compiled(np.array([1 << 56, 2]))
        assert same(compiled(np.array([4, 2])), np.zeros(4, np.int64))


def test_threads_create_results_of_lengths_by_value() -> None:
    """Long runs release Python's lock, which is held while an array is created."""

    def selected(x: Any) -> Any:
        return x[x > 0], np.cumsum(x[x < 0])

    compiled, rng = pb.jit(selected), np.random.default_rng(1)
    inputs = rng.normal(size=(8, 60_000)) + np.linspace(-1, 1, 8)[:, None]
    expected = [compiled(x) for x in inputs]
    warm(compiled, inputs[0])
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(30):
            if not same(compiled(inputs[k]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_static_numbers_of_numpys_select_their_program() -> None:
    compiled = pb.jit(lambda x, n: sum((x * k for k in range(n)), x))
    for n in (np.int64(3), np.int32(3), 3, np.int64(2)):
        expected = warm(compiled, np.ones(2), n)
        assert same(expected, np.full(2, 1.0 + sum(range(n))))
    assert same(compiled(np.ones(2), np.int64(3)), np.full(2, 4.0))


def test_a_builtin_that_is_hidden_or_replaced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "builtin_of_test", lambda x: 3 * x, raising=False)
    compiled = pb.jit(lambda x: builtin_of_test(x))  # type: ignore[name-defined]  # noqa: F821
    assert same(warm(compiled, np.ones(3)), np.full(3, 3.0))
    assert compiled.explain(np.ones(3)).path == "native"
    with monkeypatch.context() as changed:
        changed.setitem(globals(), "builtin_of_test", lambda x: 7 * x)
        assert same(compiled(np.ones(3)), np.full(3, 7.0))
    assert same(compiled(np.ones(3)), np.full(3, 3.0))
    with monkeypatch.context() as changed:
        changed.setattr(builtins, "builtin_of_test", lambda x: 5 * x)
        assert same(compiled(np.ones(3)), np.full(3, 5.0))
    assert same(compiled(np.ones(3)), np.full(3, 3.0))
    monkeypatch.delattr(builtins, "builtin_of_test")
    with pytest.raises(NameError):
        compiled(np.ones(3))
