"""``pb.jit(guards=True)``: branches on traced values are followed, guarded, and traced again for other outcomes."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.checking.control_flow_reference import in_python
from pullback.programs.branch_paths import MANY_PATHS, MOST_PATHS
from pullback.runtime.process import counters


def by_sign(x):
    if x.sum() > 0:
        return x * x
    return -x


def newton(a):
    x = a
    while abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
    return x


def line_search(x):
    value, slope = np.sum(x**4), 4 * x**3
    step = 1.0
    while np.sum((x - step * slope) ** 4) > value - 0.5 * step * np.sum(slope**2):
        step = step * 0.5
    return x - step * slope


def factorial(n):
    return 1.0 if n <= 1 else n * factorial(n - 1)


def power(x, n):
    result = 1.0
    for _ in range(int(n)):
        result = result * x
    return result


def horner(x, degree):
    return sum(x**k / (k + 1) for k in range(np.int64(degree)))


def classified(x):
    names = {True: np.sin, False: np.cos}
    return names[bool(x[0] > x[1])](x)


def chained(x):
    return x * 2 if 0 < x < 1 or x == 5 else x / 2


def ordered(a, b, c):
    return np.array(sorted([a, b, c]))


def chosen(x, k):
    return [np.sin(x), np.cos(x), np.exp(x)][k]


def rounded(x):
    return len(f"{x * 1.0:.3f}") * x


def grown(x, n):
    return np.concatenate([x, np.ones(int(n))]) * 2


def bisect(f, low, high):
    while high - low > 1e-9:
        middle = (low + high) / 2
        if f(middle) > 0:
            high = middle
        else:
            low = middle
    return low


def root(c):
    return bisect(lambda x: x**3 - c, 0.0 * c, c + 1)


def first_above(x, level):
    for k in range(len(x)):
        if x[k] > level:
            return k * x[k]
    return 0.0


def positive(x):
    return x[x > 0] * 2


def weighed(x):
    return sum(k * v for k, v in enumerate(x[x > -1]))


def places(x):
    y = x.copy()
    y[y > 0] *= 3
    return np.concatenate([y, x[np.nonzero(x < 0)[0]]])


ROW = np.array([0.5, -1.5, 2.0])
CALLS: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (by_sign, [(ROW,), (-ROW,), (ROW * 2,), (ROW * np.nan,)]),
    (newton, [(2.0,), (3.0,), (1e4,), (2.5,), (1e-3,), (1e4 + 1,)]),
    (line_search, [(ROW,), (ROW / 8,), (ROW * 3,)]),
    (factorial, [(3.0,), (6.0,), (1.0,), (4.0,)]),
    (power, [(1.5, 3.0), (1.5, 2.0), (2.0, 3.0), (2.0, 0.0)]),
    (horner, [(0.5, 3.0), (0.5, 4.0)]),
    (classified, [(ROW,), (-ROW,)]),
    (chained, [(0.5,), (5.0,), (-1.0,), (2.0,), (float("nan"),)]),
    (ordered, [(3.0, 1.0, 2.0), (1.0, 2.0, 3.0), (2.0, 3.0, 1.0)]),
    (chosen, [(0.5, np.float32(2).astype(int)), (0.5, np.int64(0)), (0.5, np.int64(1))]),
    (rounded, [(1.25,), (100.5,), (1.25,)]),
    (grown, [(ROW, 2.0), (ROW, 3.0)]),
    (root, [(2.0,), (8.0,), (2.0,)]),
    (positive, [(ROW,), (-ROW,), (ROW * 0,), (ROW[::-1] + 2,)]),
    (weighed, [(ROW,), (-ROW,), (np.abs(ROW),)]),
    (places, [(ROW,), (-ROW,)]),
    (first_above, [(ROW, 0.0), (ROW, 1.0), (ROW, 9.0), (-ROW, 1.0)]),
]


@pytest.mark.parametrize("function, calls", CALLS, ids=[f.__name__ for f, _ in CALLS])
def test_values_are_those_of_plain_python(function, calls):
    compiled = pb.jit(function, guards=True)
    for args in [*calls, *reversed(calls)]:
        np.testing.assert_allclose(compiled(*args), function(*args), rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("function, calls", CALLS, ids=[f.__name__ for f, _ in CALLS])
def test_a_path_is_traced_once(function, calls):
    compiled = pb.jit(function, guards=True)
    for args in calls:
        compiled(*args)
    before = counters.snapshot()
    for args in calls * 2:
        compiled(*args)
    assert (counters.snapshot() - before).runs.get("trace", 0) == 0


GRADIENTS = [
    (by_sign, ROW),
    (by_sign, -ROW),
    (newton, 3.0),
    (newton, 50.0),
    (factorial, 4.5),
    (line_search, ROW),
    (positive, ROW),
    (places, ROW),
]


@pytest.mark.parametrize("function, x", GRADIENTS)
@pytest.mark.parametrize("is_outside", [False, True], ids=["inside", "outside"])
def test_gradients_follow_the_path(function, x, is_outside):
    def summed(x):
        return np.sum(np.sin(function(x)))

    if is_outside:
        result = pb.jit(pb.value_and_grad(summed), guards=True)(x)
    else:
        result = pb.value_and_grad(pb.jit(summed, guards=True))(x)
    step = 1e-6
    basis = np.eye(np.size(x)).reshape(-1, *np.shape(x)) * step
    slopes = [(summed(x + e) - summed(x - e)) / (2 * step) for e in basis]
    np.testing.assert_allclose(result[0], summed(x), rtol=1e-12)
    np.testing.assert_allclose(result[1], np.reshape(slopes, np.shape(x)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_transform_follows_the_path(sign):
    x, v = sign * np.array([0.5, 1.0, 2.0]), np.array([1.0, -2.0, 0.5])
    f = pb.jit(lambda x: np.sum(x**3) if x[0] > 0 else np.sum(x**2), guards=True)
    slope, curve = (3 * x**2, 6 * x) if sign > 0 else (2 * x, 2 + 0 * x)
    value, pull = pb.vjp(f, x)
    _, push = pb.linearize(f, x)
    np.testing.assert_allclose(pull(2.0)[0], 2 * slope)
    np.testing.assert_allclose(push(v), slope @ v)
    np.testing.assert_allclose(pb.jvp(f, (x,), (v,)), (value, slope @ v))
    np.testing.assert_allclose(pb.hessian(f)(x), np.diag(curve))
    np.testing.assert_allclose(pb.hvp(f, (x,), (v,)), curve * v)
    np.testing.assert_allclose(pb.grad(pb.checkpoint(f))(x), slope)
    np.testing.assert_allclose(pb.grad(lambda x: pb.checkpoint(f)(x) ** 2)(x), 2 * value * slope)
    np.testing.assert_allclose(pb.jacrev(f)(x), slope)
    np.testing.assert_allclose(pb.vmap(lambda x, w: w * f(x), in_axes=(None, 0))(x, v), v * value)


def test_a_branch_in_a_custom_rule():
    @pb.custom_vjp
    def clipped(x):
        return x * x

    clipped.defvjp(lambda x: (x * x, x), lambda x, ct: (ct if x > 1 else 2 * x * ct,))
    gradient = pb.jit(pb.grad(clipped), guards=True)
    assert [gradient(v) for v in (0.5, 3.0, 0.25, 2.0)] == [1.0, 1.0, 0.5, 1.0]


def test_effects_happen_once_for_each_call(capsys):
    seen = []

    def note(v):
        seen.append(float(v))
        return v * 2

    @pb.jit(guards=True)
    def f(a):
        pb.print("in", a[0])
        doubled = pb.callback(note, np.float64(0), a[0])
        a[0] += 1
        if a[0] > 2:
            a[1] = 9
            pb.print("big")
        return doubled

    a = np.zeros(2)
    assert [f(a) for _ in range(4)] == [0.0, 2.0, 4.0, 6.0]
    assert a.tolist() == [4.0, 9.0] and seen == [0.0, 1.0, 2.0, 3.0]
    assert capsys.readouterr().out.split() == ["in", "0.0", "in", "1.0", "in", "2.0", "big", "in", "3.0", "big"]


def scanned(x, s):
    return pb.scan(lambda c, r: (c + (r if s * 2 > 0 else -r * c), c), 1.0, x)[0]


def looped(x, s):
    return pb.fori_loop(0, 3, lambda k, c: c * x[0] if pb.grad(np.sin)(s) > 0.5 else c + k, s)


def chosen_twice(x, s):
    return pb.cond(x[0] > 0, lambda: 1.0 if s + 1 > 0 else 2.0, lambda: 3.0 if s * 3 > 0 else 4.0)


def after_a_loop(x, s):
    y = pb.while_loop(lambda c: np.abs(c) < 4, lambda c: c * 1.5, s)
    return y * x[1] if y > 0 else y


@pytest.mark.parametrize("function", [scanned, looped, chosen_twice, after_a_loop])
def test_in_bodies_branches_on_what_does_not_change_there(function, capsys):
    @pb.jit(guards=True)
    def f(x, s):
        pb.print("run")
        return function(x, s)

    calls = [(ROW, 1.0), (ROW, -1.25), (-ROW, 2.0), (-ROW, -0.5), (ROW, 0.25)]
    result = [f(*args) for args in calls]
    assert capsys.readouterr().out.split() == ["run"] * len(calls)
    with in_python():
        np.testing.assert_allclose(result, [function(*args) for args in calls])
        slopes = [[(function(x + e, s) - function(x - e, s)) / 2e-6 for e in np.eye(3) * 1e-6] for x, s in calls]
    np.testing.assert_allclose([pb.grad(f)(*args) for args in calls], slopes, rtol=1e-6, atol=1e-8)


def test_what_a_mask_chooses_is_counted_only_where_its_shape_is_asked_for():
    f = pb.jit(lambda x: x[x > 0].sum(), guards=True)
    assert [f(v) for v in (ROW, -ROW, ROW * 0)] == [2.5, 1.5, 0.0]
    assert f.explain(ROW).variants == 1 and not f.explain(ROW).branches


def test_a_check_before_a_branch_fails_as_in_numpy():
    @pb.jit(guards=True)
    def f(x, k):
        y = x[k]
        return y if y > 0 else -y

    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        f(ROW, np.int64(7))
    assert [f(ROW, np.int64(k)) for k in (0, 1, 2)] == [0.5, 1.5, 2.0]
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        f(ROW, np.int64(7))


def test_a_branch_guards_what_comes_after_it():
    f = pb.jit(lambda x, k: x[k] if k < len(x) else 0.0, guards=True)
    assert [f(ROW, np.int64(k)) for k in (1, 5, 2, 10**15)] == [-1.5, 0.0, 2.0, 0.0]


def test_an_error_of_the_function_is_its_own():
    @pb.jit(guards=True)
    def f(x):
        if x < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    assert f(4.0) == 2.0
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            f(-1.0)
    assert f(9.0) == 3.0


def test_what_a_branch_reads_outside_is_read_at_each_call():
    level = 1.0

    @pb.jit(guards=True)
    def f(x):
        return x if x > level else -x

    result = [f(2.0)]
    level = 3.0
    result.append(f(2.0))
    level = 1.5
    assert [*result, f(2.0)] == [2.0, -2.0, 2.0]


@pytest.mark.parametrize(
    "function, word",
    [
        (lambda x: pb.vmap(lambda r: r if r > 0 else -r)(x), "row to row"),
        (lambda x: x if pb.callback(lambda v: v, np.float64(0), x[0]) > 0 else -x, "Python function"),
        (lambda x: pb.grad(_branching_rule())(x[0]), "cotangent"),
    ],
)
def test_what_cannot_be_followed(function, word):
    with pytest.raises(pb.TraceError, match=f"{word}(.|\n)*np.where") as caught:
        pb.jit(function, guards=True)(ROW)
    assert caught.value.file == __file__ and "guards=" not in caught.value.hint


def _branching_rule():
    @pb.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, None), lambda _, ct: (ct if ct > 0 else -ct,))
    return f


def test_a_branch_that_explodes_warns_once_and_stays_right():
    f = pb.jit(lambda x: x * len(f"{x * 1.0:.17g}"), guards=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(MANY_PATHS + 4):
            x = 1.0 + k / 7
            assert f(x) == x * len(f"{x:.17g}")
    (warning,) = caught
    assert warning.category is pb.RetraceWarning and warning.filename == __file__
    assert f"more than {MANY_PATHS}" in str(warning.message) and "pb.while_loop" in str(warning.message)


def test_paths_are_bounded():
    f = pb.jit(power, guards=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(MOST_PATHS + 3):
            assert f(1.0, float(n)) == 1.0
    assert f.explain(1.0, 5.0).variants == MOST_PATHS


def test_explain_names_the_guards():
    f = pb.jit(newton, guards=True)
    f(3.0)
    report = f.explain(3.0)
    assert report.is_compiled and [b.value for b in report.branches] == [True] * (len(report.branches) - 1) + [False]
    assert "abs(x * x - a) > 1e-12 * a is True (" in str(report)
    assert not f.explain(1e6).is_compiled


def test_a_result_may_be_what_no_program_gives():
    """The interpreter rounds in its own way: where a compiled guard sees the other side, the interpreter's run is the result."""
    x = np.random.default_rng(0).normal(size=4001)
    total = np.sum(np.exp(np.sin(x)))
    f = pb.jit(lambda x, t: (np.sum(np.exp(np.sin(x))) >= t) * 1.0 if np.sum(np.exp(np.sin(x))) >= t else -1.0, guards=True)
    for t in (total, np.nextafter(total, 9e9), np.nextafter(total, 0), total * (1 + 3e-16)):
        assert f(x, t) in (1.0, -1.0)


def regula_falsi(p, steps):
    def f(x):
        return x**3 - p[0] * x - p[1]

    a, b = 0.0, 4.0
    fa, fb = f(a), f(b)
    for _ in range(steps):
        x = b - fb * (b - a) / (fb - fa)
        fx = f(x)
        if abs(x - b) < 1e-15:
            break
        if fx * fb > 0:
            b, fb, fa = x, fx, fa * 0.5
        else:
            a, fa, b, fb = b, fb, x, fx
        if abs(fa) < abs(fb):
            a, b, fa, fb = b, a, fb, fa
        if fb == fa:
            break
    return b


def test_the_interpreter_follows_the_traced_path_where_a_rewrite_decides_otherwise():
    """Residuals at a root are rounding errors, which depend on how ``x**3`` is computed."""
    rng = np.random.default_rng(0)
    calls = [np.array([1.45544253, 0.90468007]), *rng.uniform(0.5, 2, (5, 2))]
    for p in calls:
        np.testing.assert_allclose(pb.jit(regula_falsi, guards=True)(p, 60), regula_falsi(p, 60), rtol=1e-14)


def test_the_error_names_the_option():
    with pytest.raises(pb.TraceError, match=r"or follow it by pb.jit\(guards=True\)"):
        pb.jit(by_sign, loops="unroll")(ROW)
