"""``pb.find_nan``: the first value that is not finite, by op, place and operands."""

import html
import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb

OUTSIDE = np.array([1.0, np.nan])


def overflow(w: Any, x: Any) -> Any:
    z = x @ w
    p = np.exp(z)  # here
    q = p / p.sum()
    return -np.log(q).sum()


def root(x: Any) -> Any:
    y = 2.0 * x
    return np.sqrt(y).sum()  # here


def cancelled(x: Any) -> Any:
    s = np.where(x > 0, x, -np.inf)
    e = np.exp(s - s.max())  # here
    return e.sum()


def nested(p: Any) -> Any:
    return {"r": np.log(p["k"][0])}  # here


def divided(a: Any, b: Any) -> Any:
    return a / b  # here


def chosen(x: Any) -> Any:
    return np.where(x > 0, x, np.nan).sum()  # here


def sliced(x: Any) -> Any:
    y = np.log(x)  # here
    return y[1:].sum() + x[0]


def late(x: Any) -> Any:
    return scipy.special.gammaln(np.floor(x)).sum()  # here


def wrapped(x: Any) -> Any:
    return pb.grad(root)(x) * 2.0


ONES = np.ones((3, 2))
# the function with the marked line, what is called, arguments, kind, op, note, index, what the operands hold there
FOUND: list[tuple[Any, Any, tuple[Any, ...], str, str, str, tuple[int, ...], list[float]]] = [
    (overflow, overflow, (np.array([1000.0, 2.0]), ONES), "inf", "exp", "", (0,), [1002.0]),
    (overflow, pb.jit(overflow), (np.array([1000.0, 2.0]), ONES), "inf", "exp", "", (0,), [1002.0]),
    (overflow, pb.jit(pb.value_and_grad(overflow)), (np.array([1000.0, 2.0]), ONES), "inf", "exp", "", (0,), [1002.0]),
    (root, pb.grad(root), (np.array([1.0, 0.0]),), "inf", "div", "pullback(sqrt)", (1,), [1.0, 0.0]),
    (root, wrapped, (np.array([1.0, 0.0]),), "inf", "div", "pullback(sqrt)", (1,), [1.0, 0.0]),
    (root, root, (np.array([4.0, -2.0]),), "nan", "sqrt", "", (1,), [-4.0]),
    (cancelled, cancelled, (np.array([-1.0, -1.0]),), "nan", "sub", "", (0,), [-np.inf, -np.inf]),
    (nested, nested, ({"k": [np.array([[1.0, 0.0]])]},), "inf", "log", "", (0, 1), [0.0]),
    (divided, divided, (np.float64(1.0), np.float64(0.0)), "inf", "div", "", (), [1.0, 0.0]),
    (divided, divided, (np.float32(0), np.float32(0)), "nan", "div", "", (), [0.0, 0.0]),
    (chosen, chosen, (np.array([1.0, -1.0]),), "nan", "select", "", (1,), [False, -1.0, np.nan]),
    (sliced, sliced, (np.array([-1.0, 0.0, 2.0]),), "inf", "log", "", (1,), [0.0]),
    (late, late, (np.array([1.5, 0.5]),), "inf", "gammaln", "", (1,), [0.0]),
]


@pytest.mark.parametrize("plain, f, args, kind, op, note, index, there", FOUND, ids=range(len(FOUND)))
def test_the_first_place(plain: Any, f: Any, args: Any, kind: str, op: str, note: str, index: Any, there: Any) -> None:
    report = pb.find_nan(f)(*args)
    assert report
    first = report.first
    assert first is not None
    lines, start = inspect.getsourcelines(plain)
    line = start + next(k for k, text in enumerate(lines) if text.endswith("# here\n"))
    assert (first.kind, first.op, first.note, first.index) == (kind, op, note, index)
    assert (first.file, first.line, first.source) == (__file__, line, lines[line - start].strip())
    np.testing.assert_array_equal([o.value for o in first.operands], there)
    assert (kind == "nan") == bool(np.isnan(first.value))
    text = str(report)
    assert f"test_find_nan.py:{line}" in text and first.source in text
    assert html.escape(text) in report._repr_html_()


def test_what_comes_after_the_first() -> None:
    report = pb.find_nan(overflow)(np.array([1000.0, 2.0]), ONES)
    assert [(e.kind, e.op, e.count, e.size) for e in report.others] == [("nan", "div", 3, 3)]
    assert report.results == ("result",)


def test_a_result_that_is_a_constant() -> None:
    for value in (np.nan, np.inf):
        report = pb.find_nan(lambda x, value=value: (x, np.full(2, value)))(1.0)
        assert report and report.results == ("result[1]",)


def test_bad_inputs_are_named() -> None:
    first = pb.find_nan(pb.grad(lambda p, x: np.sum(p["w"] * x)))({"w": np.ones(3)}, np.array([1.0, 2.0, np.nan])).first
    assert first is not None
    assert (first.op, first.name, first.index, first.line) == ("", "argument x", (2,), 0)
    first = pb.find_nan(lambda p: np.sum(p["w"][1]))({"w": (0.0, np.array([np.inf]))}).first
    assert first is not None and (first.name, first.kind) == ("argument p['w'][1]", "inf")
    first = pb.find_nan(lambda x: x * OUTSIDE)(2.0).first
    assert first is not None and first.name == "OUTSIDE, from outside"


FINITE: list[tuple[Any, tuple[Any, ...]]] = [
    (lambda x: np.where(x > 0, np.log(x), 0.0).sum(), (np.array([1.0, -1.0]),)),
    (pb.grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0).sum()), (np.array([1.0, 0.0, -1.0]),)),
    (cancelled, (np.array([1.0, -1.0]),)),
    (lambda n: n + 1, (3,)), (lambda x: np.sum(x[x > 0]) + np.log(x[x > 2]).sum(), (np.array([1.0, -1.0, 3.0]),)),
    (lambda x: x, (np.zeros((0, 3)),)),
    (lambda x: x[1:], (np.array([np.nan, 1.0]),)),
    (lambda x: x > 0, (np.array([np.nan, 1.0]),)),
    (lambda: 1.0, ()),
]


@pytest.mark.parametrize("f, args", FINITE, ids=range(len(FINITE)))
def test_all_finite(f: Any, args: Any) -> None:
    report = pb.find_nan(f)(*args)
    assert not report
    assert (report.first, report.others, report.results) == (None, (), ())
    assert str(report).endswith(": all finite")


def test_infinities_can_be_left_out() -> None:
    assert not pb.find_nan(divided, inf=False)(np.float64(1.0), np.float64(0.0))
    report = pb.find_nan(overflow, inf=False)(np.array([1000.0, 2.0]), ONES)
    assert report.first is not None and (report.first.op, report.first.kind) == ("div", "nan")


def test_methods_writes_and_failures() -> None:
    class Model:
        scale = 0.0

        def plain(self, x: Any) -> Any:
            return x / self.scale

        @pb.jit
        def compiled(self, x: Any) -> Any:
            return x / self.scale

    for method in (Model().plain, Model().compiled):
        result = pb.find_nan(method)(np.ones(2)).first
        assert result is not None and result.op == "div"

    def writes(x: Any) -> None:
        x[1] = np.log(x[1])

    report = pb.find_nan(writes)(np.zeros(3))
    assert report.results == ("argument x after the call",)
    with pytest.raises(IndexError):
        pb.find_nan(lambda x, i: x[i])(np.ones(3), np.array([7]))
    with pytest.raises(pb.TraceError):
        pb.find_nan(pb.jit(lambda x: 1.0 if x > 0 else 2.0, loops="unroll"))(3.0)
    assert pb.find_nan(lambda x: 1.0 if x > 0 else 2.0)(3.0).first is None
    rooted_below = pb.find_nan(lambda x: 1.0 if x > 0 else np.sqrt(x))(-3.0).first
    assert rooted_below is not None and rooted_below.op == "sqrt"


def rooted(x: float) -> float:
    def body(i: Any, s: Any) -> Any:
        root = np.sqrt(s - 1.5)
        return s - pb.cond(root > 1, lambda: root, lambda: 2 * root)

    return pb.fori_loop(0, 6, body, x)  # type: ignore[no-any-return]


def squared(x: float) -> float:
    return pb.while_loop(lambda s: s[1] < 5, lambda s: (s[0] * s[0], s[1] + 1), (x, 0))[0]


def logarithms(x: Any) -> Any:
    return pb.scan(lambda t, row: (t + np.sum(np.log(row)), np.log(row)), 0.0, x)


IN_LOOPS = {
    "the turn of a loop": (rooted, 20.0, 9.0, "sqrt", -0.9998193386855208),
    "an overflow while it runs": (squared, 1.0, 1e100, "mul", 1e200),
    "a row": (logarithms, np.ones((2, 2)), np.array([[1.0, 2.0], [-3.0, 4.0]]), "log", -3.0),
}


@pytest.mark.parametrize("name", IN_LOOPS)
def test_a_loop_is_followed_turn_by_turn(name: str) -> None:
    function, fine, x, op, there = IN_LOOPS[name]
    result = pb.find_nan(function)(x)
    assert result.first is not None
    assert (result.first.op, result.first.operands[0].value) == (op, there)
    assert not pb.find_nan(function)(fine)
