"""Objects of pandas, xarray, polars, dask, torch, and of classes with arithmetic of their own, as arguments and from outside.

What a compiled program gives is what the plain one gives, or a TraceError that says what gives the array.
"""

import ast
import linecache
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import pandas
import pytest

import pullback as pb
from tests.tables import labelled as labelled_lines
from tests.tables.labelled import OBJECTS

X = np.array([0.5, 1.5, -1.0, 2.0])
Y = 2.0
OTHERS = re.compile("branch|mask chooses|is not supported|random|depends on values|no hash|from outside|would run|to a NumPy")
"""What errors say that are not about the object."""
WORDS = re.compile(r"to_numpy\(|\.values|\.numpy\(\)|np\.asarray|\.compute\(\)|\.filled")


def skipped(library: str) -> str:
    if library == "torch" and labelled_lines.torch is None:
        return "torch is not installed; the bench extra has it"
    return ""


def params(must: bool) -> list[Any]:
    result = []
    for library in OBJECTS:
        marks = [pytest.mark.skipif(bool(skipped(library)), reason=skipped(library))]
        chosen = [line for computes, line in labelled_lines.lines(library) if computes is must]
        result += [pytest.param(library, line, id=f"{library}-{count}", marks=marks) for count, line in enumerate(chosen)]
    return result


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        yield


def function(parameters: list[str], text: str, names: dict[str, Any]) -> Any:
    """The function of an expression, in a file of its own."""
    source = f"def line({', '.join(parameters)}):\n    return {text}\n"
    file = f"/labelled/{abs(hash(source))}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"np": np, **names}
    exec(compile(source, file, "exec"), space)
    return space["line"]


def leaves(x: Any) -> Any:
    """A result as arrays."""
    if isinstance(x, tuple | list):
        return [leaf for part in x for leaf in leaves(part)]
    return [np.asarray(x)]


def outcome(call: Any, *args: Any) -> Any:
    try:
        return leaves(call(*args))
    except Exception as error:
        return error


def verdict(plain: Any, result: Any, file: str, must: bool) -> str:
    """What is wrong with a compiled result; empty if nothing is."""
    if isinstance(result, pb.TraceError):
        if must:
            return f"refused: {result}"
        if result.file not in (file, __file__, labelled_lines.__file__):
            return f"at {result.file}:{result.line}: {result}"
        is_told = WORDS.search(str(result)) or OTHERS.search(str(result)) or isinstance(plain, Exception)
        return "" if is_told else f"says only: {result}"
    if isinstance(plain, Exception):
        return "" if isinstance(result, Exception) else f"raises {plain!r}, compiled {result}"
    if isinstance(result, Exception):
        return f"{type(result).__name__}: {result}"
    if len(plain) != len(result):
        return f"plain {plain}, compiled {result}"
    for a, b in zip(plain, result, strict=True):
        is_text = a.dtype.kind not in "biufc" or b.dtype.kind not in "biufc"
        same = a.shape == b.shape and (bool(np.all(a == b)) if is_text else np.allclose(a, b, rtol=1e-6, equal_nan=True))
        if not same or (a.dtype != b.dtype and not is_text):
            return f"plain {a!r}, compiled {b!r}"
    return ""


def names_in(text: str, objects: dict[str, Any]) -> list[str]:
    used = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    return [n for n in objects if n in used]


def is_module(value: Any) -> bool:
    return hasattr(value, "__spec__") or type(value).__name__ == "UnitRegistry"


def wrong(library: str, line: str, must: bool, options: dict[str, Any]) -> list[str]:
    result = []
    for text in (part.strip() for part in line.split(";") if part.strip()):
        objects = OBJECTS[library]()
        modules = {k: v for k, v in objects.items() if is_module(v)}
        used = [n for n in names_in(text, objects) if n not in modules]
        more = [n for n in ("x", "y") if n in names_in(text, {"x": 1, "y": 1})]
        values = [*(objects[n] for n in used), *({"x": X, "y": Y}[n] for n in more)]
        plain = function([*used, *more], text, modules)
        compiled = pb.jit(function([*used, *more], text, modules), **options)
        bad = verdict(outcome(plain, *values), outcome(compiled, *values), plain.__code__.co_filename, must)
        result += [f"{text} (arguments): {bad}"] if bad else []
        for shown in (text,) if more else (text, f"({text}) * y"):
            plain, compiled = function(["x", "y"], shown, objects), function(["x", "y"], shown, objects)
            compiled = pb.jit(compiled, **options)
            bad = verdict(outcome(plain, X, Y), outcome(compiled, X, Y), plain.__code__.co_filename, False)
            result += [f"{shown} (outside): {bad}"] if bad else []
    return result


@pytest.mark.parametrize(("library", "line"), params(True))
def test_what_computes(library: str, line: str) -> None:
    assert not wrong(library, line, True, {})


@pytest.mark.parametrize(("library", "line"), params(False))
def test_equal_or_refused(library: str, line: str) -> None:
    assert not wrong(library, line, False, {})


@pytest.mark.parametrize("options", [{"check": True}, {"debug": True}, {"guards": True}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_options(library: str, options: dict[str, Any]) -> None:
    result: list[str] = []
    chosen = [(must, line) for must, line in labelled_lines.lines(library)]
    for must, line in chosen if library == "xarray" else chosen[:6]:
        result += wrong(library, ";".join(line.split(";")[::3]), must, options)
    assert not result


# what changes between calls


def series(*values: float, index: Any = None) -> Any:
    return pandas.Series(values, index=index, dtype=float)


def test_arguments_are_told_apart() -> None:
    f = pb.jit(lambda a, b: a * b)
    s, x = series(1.0, 2.0, 4.0), np.array([1.0, 10.0, 100.0])
    for a, b in ((s, s * 2), (x, x), (s, x), (x, s), (s, s + 1), (series(1.0, 2.0, 4.0, index=[5, 6, 7]),) * 2):
        np.testing.assert_array_equal(f(a, b), np.asarray(a * b))
    for _ in range(3):
        for other in (s[::-1], series(1.0, 2.0, 4.0, index=[0, 1, 3])):
            with pytest.raises(pb.TraceError, match=r"labels, which differ"):
                f(s, other)
        np.testing.assert_array_equal(f(s, s), s * s)
    g = pb.jit(np.sum)
    assert g(x) == 111.0
    with pytest.raises(pb.TraceError, match=r"to_numpy\(\)"):
        g(s)
    assert g(x) == 111.0


def test_new_labels_are_not_traced_again() -> None:
    traces: SimpleQueue[int] = SimpleQueue()

    @pb.jit
    def f(a: Any, b: Any) -> Any:
        traces.put(1)
        return a * b + 1

    for start in range(5):
        index = np.arange(start, start + 3)
        a, b = series(1.0, 2.0, 3.0, index=index), series(4.0, 5.0, 6.0, index=index.copy())
        np.testing.assert_array_equal(f(a, b), a * b + 1)
    assert traces.qsize() == 1


class Model:
    def __init__(self, weights: Any) -> None:
        self.weights = weights

    @pb.jit
    def scaled(self, x: Any) -> Any:
        return x * self.weights.std() + self.weights.iloc[-1]


def test_what_changes_outside_is_seen() -> None:
    s, frame = series(1.0, 2.0, 4.0), pandas.DataFrame({"a": [1.0, 2.0, 4.0], "b": [1, 2, 3]})
    model, holder = Model(s), {"s": s}
    x = np.array([1.0, 2.0, 3.0])
    calls = [
        lambda x: x * s,
        lambda x: s * x,
        lambda x: x * s.mean(),
        lambda x: x * holder["s"].iloc[0],
        lambda x: x + frame["a"] * frame["b"].sum(),
        lambda x: np.dot(x, s) + len(frame.columns),
        lambda x, y=s: x * y.max(),
    ]
    compiled = [pb.jit(c) for c in calls]

    def same() -> None:
        for c, f in zip(calls, compiled, strict=True):
            for _ in range(2):
                np.testing.assert_array_equal(f(x), np.asarray(c(x)))
        np.testing.assert_array_equal(model.scaled(x), x * model.weights.std() + model.weights.iloc[-1])

    same()
    s.iloc[0] = 100.0
    same()
    s.index = [3, 4, 5]
    same()
    s.loc[4] = -1.0
    frame["b"] = [1, 2, 30]
    same()
    frame["c"] = 1.0
    same()
    frame.iloc[1, 0] = np.nan
    same()
    model.weights = series(5.0, 5.5, 7.0)
    holder["s"] = series(9.0, 8.0, 7.0)
    same()


def test_arrays_with_masks_outside() -> None:
    m = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    f = pb.jit(lambda x: x * m.mean())
    assert f(1.0) == 2.0
    m.mask[1] = False
    assert f(1.0) == 2.0
    m.mask[0] = True
    assert f(1.0) == 2.5
    m.data[1] = 7.0
    assert f(1.0) == 5.0


def test_a_change_outside_is_refused() -> None:
    s = series(1.0, 2.0, 4.0)

    def put(x: Any) -> Any:
        s.iloc[0] = 5.0
        return x * s

    with pytest.raises(pb.TraceError, match="the traced function changes s"):
        pb.jit(put)(np.ones(3))


# transforms, containers


def test_transforms() -> None:
    s, x = series(1.0, 2.0, 4.0, 8.0), np.arange(4.0)
    frame = pandas.DataFrame(np.arange(12.0).reshape(4, 3))
    assert pb.grad(lambda x: x * s.std())(2.0) == s.std()
    assert pb.grad(lambda x: np.sum(x * np.array([1.0, 2.0])) * s.var())(np.ones(2)).tolist() == [s.var(), 2 * s.var()]
    result = pb.grad(lambda w: np.sum((frame @ w - s).to_numpy() ** 2))(np.ones(3))
    data = frame.to_numpy()
    np.testing.assert_allclose(result, 2 * data.T @ (data @ np.ones(3) - s.to_numpy()))
    for built in (
        pb.grad(lambda s: np.sum((s * s).to_numpy())),
        lambda s: pb.value_and_grad(lambda s: np.sum((s * s).to_numpy()))(s)[1],
        lambda s: pb.grad(lambda p: np.sum((p["w"] * p["w"]).to_numpy()))({"w": s})["w"],
        pb.jit(lambda s: pb.grad(lambda t: np.sum((t * t).to_numpy()))(s) * 1),
    ):
        result = built(s)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, 2 * s)
    np.testing.assert_array_equal(pb.jacobian(lambda s: s * s)(s), np.diag(2 * s.to_numpy()))
    np.testing.assert_array_equal(pb.vmap(lambda v: v * 2)(s), 2 * s)
    np.testing.assert_array_equal(pb.vmap(lambda row, v: row * v)(frame, s), frame.to_numpy() * s.to_numpy()[:, None])
    np.testing.assert_array_equal(pb.jvp(lambda s: s * s, (s,), (x,))[1], 2 * s * x)
    value, pull = pb.vjp(lambda s: s * s, s)
    np.testing.assert_array_equal(value, s * s)
    np.testing.assert_array_equal(pull(x)[0], 2 * s * x)
    np.testing.assert_array_equal(pb.jit(lambda s: pb.checkpoint(lambda v: v * v + 1)(s))(s), s * s + 1)
    np.testing.assert_array_equal(pb.jit(lambda s: pb.cond(True, lambda v: v * 2, lambda v: v, s))(s), s * 2)
    np.testing.assert_array_equal(pb.jit(lambda s: pb.fori_loop(0, 3, lambda i, v: v * 2, s))(s), s * 8)
    np.testing.assert_array_equal(pb.jit(lambda s: pb.map(lambda v: v * 2, s))(s), s * 2)


@pytest.mark.parametrize(
    "call",
    [
        pb.grad(lambda s: s.std()),
        pb.grad(lambda s: np.sum(s * s)),
        pb.value_and_grad(lambda p: p["w"].mean()),
        pb.vmap(lambda row: row.mean()),
        pb.jit(lambda s: pb.grad(lambda t: t.var())(s)),
        pb.jit(lambda s: pb.fori_loop(0, 3, lambda i, v: v * v.mean(), s)),
        pb.jit(lambda s: pb.cond(True, lambda v: v.std(), lambda v: v.sum(), s)),
        pb.jit(lambda s: pb.callback(lambda v: v.std(), np.float64(0), s)),
        pb.jit(lambda s: pb.checkpoint(lambda v: v.std())(s)),
        pb.hessian(lambda s: s.std()),
        pb.jacobian(lambda s: s - s.mean()),
    ],
    ids=range(11),
)
def test_refused_inside_transforms(call: Any) -> None:
    s = series(1.0, 2.0, 4.0)
    frame = pandas.DataFrame(np.arange(6.0).reshape(3, 2))
    with pytest.raises(pb.TraceError, match=r"to_numpy\(\)"):
        call({"w": s} if "value_and_grad" in repr(call) else frame if "vmap" in repr(call) else s)


@dataclass
class Parameters:
    w: Any
    b: Any


def test_in_containers() -> None:
    s = series(1.0, 2.0, 4.0)
    f = pb.jit(lambda p: p.w * p.b)
    np.testing.assert_array_equal(f(Parameters(s, s)), s * s)
    np.testing.assert_array_equal(f(Parameters(s, np.ones(3))), s)
    with pytest.raises(pb.TraceError, match="labels, which differ"):
        f(Parameters(s, s[::-1]))
    np.testing.assert_array_equal(f(Parameters(s, s + 1)), s * (s + 1))
    with pytest.raises(pb.TraceError, match=r"p\.w\.to_numpy\(\)"):
        pb.jit(lambda p: p.w.mean())(Parameters(s, 1.0))
    g = pb.jit(lambda d: [d["a"][0] * d["a"][1]])
    np.testing.assert_array_equal(g({"a": (s, s)})[0], s * s)
    with pytest.raises(pb.TraceError, match="labels, which differ"):
        g({"a": (s, s[::-1])})


def test_the_message() -> None:
    with pytest.raises(pb.TraceError) as caught:
        pb.jit(lambda sales: sales.std())(series(1.0, 2.0))
    met = "the method or attribute .std of a pandas Series does not mean what it means for an array"
    assert caught.value.message == f"{met}; write sales.to_numpy(), for the array of numbers"
    assert caught.value.file == __file__


# classes of the user's


class Answering:
    """What says itself what functions make of it, otherwise than of the array that it converts to."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.data

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*(x.data if isinstance(x, Answering) else x for x in inputs), **kwargs) * 10

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return 7 * function(*(given(a) for a in args), **kwargs)


def given(x: Any) -> Any:
    if isinstance(x, list):
        return [given(item) for item in x]
    return x.data if isinstance(x, Answering) else x


@pytest.mark.parametrize(
    "call",
    [
        lambda y, q: y * q,
        lambda y, q: np.multiply(y, q),
        lambda y, q: np.add(q, y),
        lambda y, q: np.sin(q) * y,
        lambda y, q: np.sum(q) * y,
        lambda y, q: np.dot(y, q),
        lambda y, q: np.concatenate([y, q]),
    ],
    ids=range(7),
)
def test_objects_that_say_what_functions_make_of_them(call: Any) -> None:
    q = Answering([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(pb.jit(call)(X, q), call(X, q), rtol=1e-14)
    np.testing.assert_allclose(pb.jit(lambda y: call(y, q))(X), call(X, q), rtol=1e-14)
    np.testing.assert_allclose(pb.jit(lambda y: call(y, q), check=True)(X), call(X, q), rtol=1e-14)


def test_series_of_a_class_of_the_users() -> None:
    class Own(pandas.Series):
        @property
        def _constructor(self) -> Any:
            return Own

        def std(self, *args: Any, **kwargs: Any) -> Any:
            return 77.0

    s = Own([1.0, 2.0, 4.0])
    assert pb.jit(lambda y: y * s.std())(2.0) == 154.0
    np.testing.assert_array_equal(pb.jit(lambda s: s * 2)(s), [2.0, 4.0, 8.0])
    with pytest.raises(pb.TraceError, match=r"to_numpy\(\)"):
        pb.jit(lambda s: s.std())(s)
