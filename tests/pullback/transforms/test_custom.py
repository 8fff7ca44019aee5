"""Derivative rules of the user's: ``pb.custom_vjp``, ``pb.custom_jvp`` and the primitives of ``pb.extend``."""

import pickle
import sys
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.ir.text import parse_module
from pullback.ir.verify import verify_module
from pullback.programs.pipeline import template_counts

X = np.array([0.5, 1.5, -2.5])
Y = np.array([1.0, 2.0, 0.5])
M = np.arange(6.0).reshape(2, 3) / 5 + 0.1
Pair = namedtuple("Pair", "a b")
FACTOR = 2.0
met: list[Any] = []


@pb.custom_vjp
def by_vjp(x: Any, y: Any) -> Any:
    return np.sin(x) * y


by_vjp.defvjp(lambda x, y: (by_vjp(x, y), (np.cos(x), x, y)), lambda res, g: (g * res[0] * res[2], g * np.sin(res[1])))


@pb.custom_jvp
def by_jvp(x: Any, y: Any) -> Any:
    return np.sin(x) * y


@by_jvp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return by_jvp(x, y), np.cos(x) * y * dx + np.sin(x) * dy


@pb.custom_jvp
def by_jvps(x: Any, y: Any) -> Any:
    return np.sin(x) * y


by_jvps.defjvps(lambda t, ans, x, y: t * np.cos(x) * y, lambda t, ans, x, y: t * np.sin(x))


@pb.extend.primitive
def by_primitive(x: Any, y: Any) -> Any:
    assert type(x) is not type(y) or isinstance(x, np.ndarray | float)
    return np.sin(x) * y


pb.extend.defvjp(by_primitive, lambda ans, x, y: lambda g: g * np.cos(x) * y, lambda ans, x, y: lambda g: g * np.sin(x))


@pb.extend.primitive(result_types=X)
def by_joint_rule(x: Any, y: Any) -> Any:
    return np.sin(x) * y


def _joint(argnums: Any, ans: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
    x, y = args
    slopes = (np.cos(x) * y, np.sin(x))
    return lambda g: [g * slopes[k] for k in argnums]


pb.extend.defvjp_argnums(by_joint_rule, _joint)


@pb.custom_vjp
def through_callback(x: Any, y: Any) -> Any:
    return pb.callback(lambda a, b: np.sin(a) * b, x, x, y)


def _back(res: Any, g: Any) -> Any:
    x, y = res
    return g * y * pb.callback(np.cos, x, x), g * pb.callback(np.sin, x, x)


through_callback.defvjp(lambda x, y: (through_callback(x, y), (x, y)), _back)

SAME = [by_vjp, by_jvp, by_jvps, by_primitive, by_joint_rule, through_callback]
NAMED = [pytest.param(f, id=f.__name__) for f in SAME]


@pytest.mark.parametrize("f", NAMED)
def test_value(f: Any) -> None:
    np.testing.assert_array_equal(f(X, Y), np.sin(X) * Y)
    np.testing.assert_allclose(pb.jit(f)(X, Y), np.sin(X) * Y, rtol=1e-15)


@pytest.mark.parametrize("f", NAMED)
def test_gradients_of_both_orders(f: Any) -> None:
    weights = np.array([0.3, -1.2, 2.0])

    def loss(x: Any, y: Any) -> Any:
        return np.sum(f(x, y) ** 2 * weights)

    order = 1 if f is through_callback else 2
    assert pb.check_grad(loss, order=order)(X, Y).is_right


def test_rules_that_call_python_have_no_second_derivative() -> None:
    loss = lambda x: np.sum(pb.grad(lambda x: np.sum(through_callback(x, Y) ** 2))(x))  # noqa: E731
    with pytest.raises(pb.TraceError, match="no derivative of its own"):
        pb.grad(loss)(X)


@pb.custom_vjp
def wrong_vjp(x: Any) -> Any:
    return np.sum(x * x)


wrong_vjp.defvjp(lambda x: (wrong_vjp(x), x), lambda x, g: (g * x**3,))


@pb.custom_jvp
def wrong_jvp(x: Any) -> Any:
    return np.sum(x * x)


wrong_jvp.defjvp(lambda p, t: (wrong_jvp(*p), np.sum(p[0] ** 3 * t[0])))


@pytest.mark.parametrize("f", [wrong_vjp, wrong_jvp])
def test_rules_count_and_not_the_function(f: Any) -> None:
    """The derivative is what the rule says, and the second that of the rule."""
    np.testing.assert_allclose(pb.grad(f)(X), X**3)
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(pb.grad(f)(x) * Y))(X), 3 * X**2 * Y)
    np.testing.assert_allclose(pb.grad(lambda x: f(x) * f(x))(X), 2 * np.sum(X * X) * X**3)
    np.testing.assert_allclose(pb.grad(lambda x: pb.grad(lambda y: f(y * x[0]))(np.sum(x) * Y)[1])(X), _mixed(), rtol=1e-12)


def _mixed() -> Any:
    """The gradient of x[0]**4 * (s * Y[1])**3, s the sum of x."""
    s = np.sum(X)
    result = np.full(3, X[0] ** 4 * Y[1] ** 3 * 3 * s**2)
    result[0] += 4 * X[0] ** 3 * (s * Y[1]) ** 3
    return result


@pb.custom_vjp
def nested(pair: Any, options: Any, count: Any) -> Any:
    return {"p": pair.a * options["w"][0], "n": count + 1, "q": (np.sum(pair.b), None)}


def _nested_fwd(pair: Any, options: Any, count: Any) -> Any:
    return nested(pair, options, count), (pair, options, count, "text")


def _nested_bwd(res: Any, ct: Any) -> Any:
    pair, options, _, text = res
    assert (text, ct["n"], ct["q"][1]) == ("text", None, None)
    back = Pair(ct["p"] * options["w"][0], np.ones(3) * ct["q"][0])
    return back, {"w": [np.sum(ct["p"] * pair.a), None]}, None


nested.defvjp(_nested_fwd, _nested_bwd)


def test_containers() -> None:
    def loss(pair: Any, w: Any, count: Any) -> Any:
        result = nested(pair, {"w": [w, "mode"]}, count)
        return np.sum(result["p"] ** 2) + result["q"][0] * result["n"]

    assert pb.check_grad(loss, argnums=(0, 1), order=2)(Pair(X, Y), 1.5, 3).is_right
    result = pb.grad(loss)(Pair(X, Y), 1.5, 3)
    assert type(result) is Pair
    np.testing.assert_allclose(result.b, np.full(3, 4.0))


def test_arguments_by_keyword_defaults_and_fixed() -> None:
    @pb.custom_vjp
    def powers(x: Any, n: Any, scale: Any = 3.0) -> Any:
        return scale * x**n

    assert pb.jit(lambda x: powers(x, n=2))(2.0) == 12.0

    def apply(f: Any, x: Any, y: Any) -> Any:
        return f(x) * y

    fixed = pb.custom_vjp(apply, nondiff_argnums=0)
    fixed.defvjp(lambda f, x, y: (fixed(f, x, y), (x, y)), lambda f, res, g: (g * 10 * res[1], g * f(res[0])))
    dx, dy = pb.grad(lambda x, y: np.sum(fixed(np.sin, x, y=y)), argnums=(0, 1))(X, Y)
    np.testing.assert_allclose((dx, dy), (10 * Y, np.sin(X)), rtol=1e-15)
    both = pb.custom_jvp(apply, nondiff_argnums=(0,))
    both.defjvp(lambda f, p, t: (f(p[0]) * p[1], 10 * t[0] * p[1] + f(p[0]) * t[1]))
    dx, dy = pb.grad(lambda x, y: np.sum(both(np.sin, x, y)), argnums=(0, 1))(X, Y)
    np.testing.assert_allclose((dx, dy), (10 * Y, np.sin(X)), rtol=1e-15)


def test_constant_arguments_and_outer_values() -> None:
    """Floats that are not traced have cotangents that go nowhere; rules may read values around them."""

    def loss(x: Any, w: Any) -> Any:
        shift = w * 2

        @pb.custom_vjp
        def shifted(x: Any, y: Any) -> Any:
            return x + y

        shifted.defvjp(lambda x, y: (x + y, None), lambda res, g: (g * np.sum(shift) * FACTOR, g))
        return np.sum(shifted(x, 1.0)) + np.sum(shifted(x, Y))

    np.testing.assert_allclose(pb.grad(loss)(X, Y), np.full(3, 2 * 7 * FACTOR))


def test_rules_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    @pb.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (x * x, x), lambda x, g: (g * x * FACTOR,))
    loss = pb.grad(lambda x: f(x))
    assert loss(3.0) == 6.0
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5.0)
    assert loss(3.0) == 15.0
    f.defvjp(lambda x: (x * x, x), lambda x, g: (g * 7.0,))
    assert loss(3.0) == 7.0


def test_templates_serve_every_shape() -> None:
    loss = pb.value_and_grad(lambda x, y: np.sum(by_vjp(x, y) * 3.25))
    loss(X, Y)
    before = template_counts().built
    _, slope = loss(X[:2], Y[:2])
    np.testing.assert_allclose(slope, 3.25 * np.cos(X[:2]) * Y[:2])
    assert template_counts().built == before


@pytest.mark.parametrize("f", [by_vjp, by_jvp, by_primitive])
def test_stages_parse_and_verify(f: Any) -> None:
    texts = pb.grad(lambda x, y: np.sum(pb.grad(lambda x: np.sum(f(x, y) ** 2))(x) * y)).stages(X, Y)
    for name in ("trace", "grad", "simplify", "fuse", "lower"):
        verify_module(parse_module(texts[name]))
    assert "custom" in texts["trace"] and "custom" not in texts["simplify"]


def test_a_callable_object_as_rule_and_a_method() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @pb.custom_vjp
        def squared(self, x: Any) -> Any:
            return self.scale * x * x

        @pb.grad
        def slope(self, x: Any) -> Any:
            return self.squared(x)

    Model.squared.defvjp(lambda self, x: (self.squared(x), x), lambda x, g: (None, g * 100 * x))
    model = Model(2.0)
    assert model.squared(3.0) == 18.0
    assert model.slope(3.0) == 300.0


def test_pickles() -> None:
    for f in (by_vjp, by_jvp, by_primitive):
        assert pickle.loads(pickle.dumps(f)) is f
    gradient = pickle.loads(pickle.dumps(pb.grad(wrong_vjp)))
    np.testing.assert_allclose(gradient(X), X**3)


def test_primitives_with_keywords_containers_and_batches_of_results() -> None:
    @pb.extend.primitive
    def spread(pair: Any, *, scale: float = 1.0) -> Any:
        return {"sum": pair[0] + pair[1], "count": 3, "scaled": [scale * pair[0]]}

    def back(ans: Any, pair: Any, scale: float = 1.0) -> Any:
        assert ans["count"].shape == ()
        return lambda g: (g["sum"] + g["scaled"][0] * scale, g["sum"])

    pb.extend.defvjp(spread, back)

    def loss(x: Any, y: Any) -> Any:
        result = spread((x, y), scale=4.0)
        return np.sum(result["sum"] ** 3) + np.sum(result["scaled"][0] ** 2) * result["count"]

    assert pb.check_grad(loss, order=2)(X, Y).is_right


def test_primitive_is_called_each_time_and_found_once() -> None:
    met.clear()

    @pb.extend.primitive
    def seen(x: Any) -> Any:
        met.append(np.array(x))
        return scipy.special.expit(x)

    pb.extend.defvjp(seen, lambda ans, x: lambda g: g * ans * (1 - ans))
    slope = pb.grad(lambda x: np.sum(seen(x)))
    for _ in range(2):
        s = scipy.special.expit(X)
        np.testing.assert_allclose(slope(X), s * (1 - s))
    np.testing.assert_array_equal(met, [np.ones(3), X, X])


def test_primitives_without_derivative() -> None:
    steps = pb.extend.notrace_primitive(np.floor)
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(steps(x) * x))(X), np.floor(X))
    product = pb.extend.primitive(lambda x, y: x * y)
    pb.extend.defvjp(product, None, lambda ans, x, y: lambda g: g * x)
    dx, dy = pb.grad(lambda x, y: np.sum(product(x, y)), argnums=(0, 1))(X, Y)
    np.testing.assert_allclose((dx, dy), (np.zeros(3), X))


def test_rules_by_argnum() -> None:
    product = pb.extend.primitive(lambda x, y, z: x * y * z)
    pb.extend.defvjp_argnum(product, lambda k, ans, args, kwargs: lambda g: g * ans / args[k])
    loss = lambda x, y: np.sum(product(x, 2.0, y))  # noqa: E731
    assert pb.check_grad(loss, order=2)(X, Y).is_right
    pb.extend.defvjp(product, lambda ans, x, y, z: lambda g: g * x * y, argnums=(2,))
    np.testing.assert_allclose(pb.grad(loss, argnums=1)(X, Y), 2 * X)


def _returning(fwd: Any, bwd: Any) -> Any:
    f = pb.custom_vjp(lambda x, y: x * y)
    f.defvjp(fwd, bwd)
    return lambda x, y: np.sum(f(x, y))


def _jvp_returning(rule: Any) -> Any:
    f = pb.custom_jvp(lambda x, y: x * y)
    f.defjvp(rule)
    return lambda x, y: np.sum(f(x, y))


def _pair(x: Any, y: Any) -> Any:
    return x * y, x


def writes(x: Any, y: Any) -> Any:
    x[0] = 0.0
    return x * y, x


def _outer(x: Any, y: Any) -> Any:
    f = pb.custom_vjp(lambda x: x * y)
    f.defvjp(lambda x: (x * y, None), lambda res, g: (g,))
    return np.sum(f(x))


def _primitive(*makers: Any) -> Any:
    f = pb.extend.primitive(lambda x, y: x * y)
    if makers:
        pb.extend.defvjp(f, *makers)
    return lambda x, y: np.sum(f(x, y))


ERRORS = [
    (lambda x, y: np.sum(pb.custom_vjp(lambda x: x)(x)), "pb.custom_vjp without a rule; give it one by .defvjp"),
    (lambda x, y: np.sum(pb.custom_jvp(lambda x: x)(x)), "pb.custom_jvp without a rule; give it one by .defjvp"),
    (_returning(lambda x, y: x * y, None), "must return (result, residuals), and returned traced f64[3]"),
    (_returning(_pair, lambda res, g: g), "must return a tuple of 2 cotangents, and returned traced f64[3]"),
    (_returning(_pair, lambda res, g: (g,)), "must return a tuple of 2 cotangents, and returned 1"),
    (_returning(_pair, lambda res, g: (g[:2], None)), "is f64[2], and what it belongs to is f64[3]"),
    (_returning(_pair, lambda res, g: ((g, g), None)), "has not the structure of the argument"),
    (_returning(writes, None), "writes into an array from outside it"),
    (_jvp_returning(lambda p, t: t[0]), "must return (result, tangent), and returned traced f64[3]"),
    (_jvp_returning(lambda p, t: (p[0], np.sum(t[0]))), "is f64[], and what it belongs to is f64[3]"),
    (_jvp_returning(lambda p, t: (p[0], (t[0],))), "has not the structure of the result"),
    (_outer, "has no derivative by its operand 1"),
    (_primitive(), "has no rule for its derivative"),
    (_primitive(lambda ans, x, y: lambda g: g * y), "has no derivative by its operand 1"),
    (_primitive(None, lambda ans, x, y: lambda g: np.sum(g)), "is f64[], and what it belongs to is f64[3]"),
]


@pytest.mark.parametrize(("loss", "words"), ERRORS, ids=range(len(ERRORS)))
def test_errors_at_the_user_s_line(loss: Any, words: str) -> None:
    with pytest.raises(pb.TraceError) as caught:
        pb.grad(loss, argnums=(0, 1))(X, Y)
    assert words in str(caught.value)
    assert caught.value.file == __file__


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pb.custom_vjp(3), "pb.custom_vjp takes a function, got int"),  # type: ignore[arg-type]
        (lambda: pb.extend.defvjp(np.sin, None), "rules are set of what pb.extend.primitive returned"),  # type: ignore[arg-type]
        (lambda: pb.extend.defvjp(by_primitive, "diff"), "a function or None, not 'diff'"),  # type: ignore[arg-type]
    ],
)
def test_refused_at_once(make: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert words in str(caught.value)


DIRECTION = np.array([0.2, -1.0, 0.7])


@pytest.mark.parametrize("f", [by_vjp, by_jvp, by_jvps, by_primitive, by_joint_rule])
def test_forward_mode(f: Any) -> None:
    """From the jvp rule, or the vjp rule transposed; of gradients too, and gradients of it."""
    value, slope = pb.jvp(f, (X, Y), (DIRECTION, X))
    np.testing.assert_allclose(value, np.sin(X) * Y)
    np.testing.assert_allclose(slope, np.cos(X) * Y * DIRECTION + np.sin(X) * X, rtol=1e-14)
    gradient = pb.grad(lambda x: np.sum(f(x, Y)))
    _, bend = pb.jvp(gradient, (X,), (DIRECTION,))
    np.testing.assert_allclose(bend, -np.sin(X) * Y * DIRECTION, rtol=1e-14)
    along = pb.grad(lambda x: np.sum(pb.jvp(lambda x: f(x, Y), (x,), (DIRECTION,))[1]))
    np.testing.assert_allclose(along(X), -np.sin(X) * Y * DIRECTION, rtol=1e-14)


@pytest.mark.parametrize("f", [wrong_vjp, wrong_jvp])
def test_forward_mode_is_that_of_the_rule(f: Any) -> None:
    np.testing.assert_allclose(pb.jvp(f, (X,), (DIRECTION,))[1], np.sum(X**3 * DIRECTION))


@pytest.mark.parametrize("f", NAMED)
def test_batched(f: Any) -> None:
    """Along an axis of some arguments; the cotangent of one without the axis is a sum."""
    rows = np.stack([X, Y, X * Y, X + 1])
    expected = np.sin(rows) * Y
    np.testing.assert_allclose(pb.vmap(f, in_axes=(0, None))(rows, Y), expected, rtol=1e-15)

    def loss(rows: Any, y: Any) -> Any:
        return np.sum(pb.vmap(f, in_axes=(0, None))(rows, y) ** 2)

    d_rows, dy = pb.grad(loss, argnums=(0, 1))(rows, Y)
    np.testing.assert_allclose(d_rows, 2 * expected * np.cos(rows) * Y, rtol=1e-14)
    np.testing.assert_allclose(dy, np.sum(2 * expected * np.sin(rows), axis=0), rtol=1e-14)
    per_row = pb.vmap(pb.grad(lambda x, y: np.sum(f(x, y) ** 2), argnums=1), in_axes=(0, None))(rows, Y)
    np.testing.assert_allclose(per_row, 2 * expected * np.sin(rows), rtol=1e-14)


@pytest.mark.parametrize("f", [by_jvp, by_vjp])
def test_batched_forward_mode(f: Any) -> None:
    rows = np.stack([X, Y])

    def slope(y: Any) -> Any:
        return pb.jvp(lambda y: f(X, y), (y,), (np.ones(3),))[1]

    np.testing.assert_allclose(pb.vmap(slope)(rows), np.broadcast_to(np.sin(X), (2, 3)))
    _, along = pb.jvp(lambda x: pb.vmap(lambda y: f(x, y))(rows), (X,), (DIRECTION,))
    np.testing.assert_allclose(along, np.cos(X) * DIRECTION * rows, rtol=1e-14)


@pb.extend.primitive
def reverse(x: Any) -> Any:
    return x[::-1].copy()


pb.extend.def_linear(reverse)
pb.extend.defvjp(reverse, lambda ans, x: lambda g: reverse(g))


@pb.extend.primitive
def scaled(x: Any, y: Any) -> Any:
    return x * y


pb.extend.defjvp(scaled, "same", lambda g, ans, x, y: g * x)


def test_forward_rules_of_primitives() -> None:
    np.testing.assert_allclose(pb.jvp(reverse, (X,), (DIRECTION,))[1], DIRECTION[::-1])
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(reverse(x) ** 3))(X), 3 * X**2)
    assert pb.check_grad(lambda x: np.sum(reverse(x) ** 3 * Y), order=2)(X).is_right
    np.testing.assert_allclose(pb.jvp(scaled, (X, Y), (DIRECTION, Y))[1], DIRECTION * Y + X * Y)
    pb.extend.defjvp_argnums(scaled, lambda ks, gs, ans, args, kwargs: sum(g * args[1 - k] for k, g in zip(ks, gs)))
    np.testing.assert_allclose(pb.jvp(scaled, (X, Y), (DIRECTION, Y))[1], DIRECTION * Y + X * Y)
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(scaled(x, Y)))(X), Y)
    pb.extend.defjvp_argnum(scaled, lambda k, g, ans, args, kwargs: g * args[1 - k])
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(scaled(x, x)))(X), 2 * X)


@pytest.mark.filterwarnings("ignore:invalid value encountered in sin")
@pytest.mark.parametrize("f", [by_vjp, by_jvp, by_primitive])
def test_branches_not_taken_stay_zero(f: Any) -> None:
    """A rule that is infinite or NaN where a branch was not taken adds nothing there."""

    def loss(x: Any) -> Any:
        return np.sum(np.where(np.isfinite(x), f(x, np.where(np.isfinite(x), 2.0, np.nan)), 0.0))

    np.testing.assert_allclose(pb.grad(loss)(np.array([np.inf, 0.5, np.nan])), [0.0, 2 * np.cos(0.5), 0.0])
