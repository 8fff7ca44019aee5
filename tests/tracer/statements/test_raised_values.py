"""Errors under traced values whose exceptions show run-time values: the text and the attributes are Python's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.ir.passes.size_classes import templated
from pullback.tracer import trace
from tests.tracer.statements.test_branches import from_text


class NotConverged(RuntimeError):
    def __init__(self, steps: Any, residual: Any, *, cause: str = "slow") -> None:
        super().__init__(f"after {steps} steps: {residual:.3e} ({cause})")
        self.steps, self.residual = steps, residual


class OutOfRange(Exception):
    pass


class Shown(ValueError):
    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"<{self.value!r}>"


def first_negative(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        if x[i] < 0:
            raise ValueError(f"x[{i}] = {x[i]:.3g} is negative: {x[i]}, {x[i]!r}, {x}, {len(x):>3}")
        total = total + x[i]
    return total


def root(a: Any, tolerance: Any, most: int = 5) -> Any:
    x = a
    for k in range(1000):
        r = x * x - a
        if abs(r) < tolerance:
            return x
        x = 0.5 * (x + a / x)
        if k > most:
            raise NotConverged(k, r, cause="stalled")
    return x


ASSERTED = """
def asserted(x):
    assert x > 0, f"x is {x}"
    assert x < 10, x
    assert x < 5, ("x", x)
    return np.log(x)
"""
asserted = from_text(ASSERTED, "asserted")


def spellings(x: Any) -> Any:
    if x > 9:
        raise OutOfRange("%.2f, %s and %d" % (x, x, int(x)), x)  # noqa: UP031
    if x > 8:
        raise Shown(x)
    if x > 7:
        raise KeyError(x) from ValueError(f"cause {x:.2f} {2 * x}")
    if x > 6:
        raise np.linalg.LinAlgError("singular: " + str(x) + repr(x)) from None
    if x > 5:
        raise OutOfRange(", ".join([f"{x:6.1f}", format(x, ".3f"), ascii(x)]).strip().upper())
    if x > 4:
        message = f"{x:{7}.{2}f}"
        raise OSError(2, message)
    return x * x


def fail(x: Any) -> Any:
    text = f"helper {x:8.2f}"
    raise OutOfRange(text)


def tripled(x: Any) -> Any:
    while x < 100:
        if x > 50:
            fail(x)
        x = x * 3
    return x + 1


def reraised(x: Any, y: Any) -> Any:
    try:
        y = {}["a"]
    except KeyError:
        if x > 0:
            raise ValueError(f"{x}, {np.max(y):.2f}, {y[1:]}") from None
    return x + 1


def raised_again(x: Any) -> Any:
    if x > 0:
        try:
            {}["a"]
        except KeyError:
            raise
    return x + 1


def raised_on_all_paths(x: Any) -> Any:
    if x > 0:
        if x > 1:
            raise ValueError(f"{x} > 1")
        raise TypeError(f"{x} <= 1")
    return x + 1


def chosen_text(x: Any) -> Any:
    if x < 0:
        message = f"low {x}"
    else:
        message = f"high {x:.1f}"
    if abs(x) > 1:
        raise ValueError(message)
    return x * 2


def written_before(x: Any) -> Any:
    y = x.copy()
    before = f"{y[0]}"
    y[0] = 7.0
    if x[1] > 0:
        raise ValueError(f"{before} -> {y[0]}, {y}")
    return y


def index_in_message(x: Any, k: Any) -> Any:
    if x[0] < 0:
        raise ValueError(f"x[k] = {x[k]}")
    return x[0] * 2


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (first_negative, (np.array([1.0, 2.0, -3.25]),)),
    (first_negative, (np.array([1.0, -2.0, 3.0], np.float32),)),
    (first_negative, (np.array([1, -2, 3]),)),
    (first_negative, (np.array([1.0, 2.0]),)),
    (first_negative, (np.zeros(0),)),
    (root, (2.0, 1e-30)),
    (root, (np.float64(2.0), 1e-30)),
    (root, (np.float32(2.0), np.float32(-1.0))),
    (root, (2.0, 1e-9)),
    *[(asserted, (kind(v),)) for kind in (float, np.float64, np.float32) for v in (-1.5, 11.0, 7.5, 2.0)],
    *[(spellings, (kind(v),)) for kind in (float, np.float64) for v in (9.5, 8.5, 7.5, 6.5, 5.5, 4.5, 0.5)],
    (tripled, (1.0,)),
    (tripled, (200.5,)),
    *[(reraised, (v, np.array([1.0, 2.0]))) for v in (1.5, -1.0)],
    *[(raised_again, (v,)) for v in (1.5, -1.0)],
    *[(raised_on_all_paths, (v,)) for v in (2.0, 0.5, -1.0)],
    *[(chosen_text, (v,)) for v in (-2.0, 2.0, 0.25)],
    *[(written_before, (np.array([1.0, v]),)) for v in (1.0, -1.0)],
    *[(index_in_message, (np.array([v, 2.0]), k)) for v in (-1.0, 1.0) for k in (np.int64(1), np.int64(5))],
]


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return np.asarray(function(*arguments)).tolist()
    except Exception as error:
        return described(error)


def described(error: BaseException) -> Any:
    attributes = {k: repr(v) for k, v in vars(error).items() if k != "__notes__"}
    cause = None if error.__cause__ is None else described(error.__cause__)
    return type(error), str(error), [repr(a) for a in error.args], attributes, cause


@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_an_exception_shows_the_values_that_python_shows(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    expected = outcome(function, arguments)
    assert outcome(pb.jit(function, guards=False), arguments) == expected


def test_one_program_serves_all_outcomes() -> None:
    function = pb.jit(spellings, guards=False)
    for x in (9.5, 8.5, 0.5, 7.25, 6.5, 5.5, 4.5):
        assert outcome(function, (x,)) == outcome(spellings, (x,))
    assert function.cache_info().compiles == 1


@pytest.mark.parametrize("transform", [pb.grad, lambda f: pb.jvp(f, (3.0,), (1.0,)), lambda f: pb.grad(pb.grad(f))])
def test_derivatives_keep_the_exception(transform: Any) -> None:
    def loss(x: Any) -> Any:
        y = x * x
        if y > 8:
            raise NotConverged(1, y)
        return y * x

    with pytest.raises(NotConverged, match=r"after 1 steps: 9.000e\+00 \(slow\)") as caught:
        result = transform(loss)
        result(3.0)
    assert caught.value.residual == 9.0


def test_derivatives_where_nothing_is_raised() -> None:
    def total(x: Any) -> Any:
        return first_negative(x * x)

    x = np.array([1.0, 2.0, 3.0])
    assert np.array_equal(pb.grad(total)(x), 2 * x)
    assert np.array_equal(pb.hessian(total)(x), 2 * np.eye(3))
    assert np.array_equal(pb.jvp(total, (x,), (np.ones(3),))[1], 12.0)


def test_vmap_names_the_row() -> None:
    def checked(x: Any, y: Any) -> Any:
        if x > y:
            raise ValueError(f"{x:.2f} > {y:.1f}")
        return x + y

    x = np.array([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"3\.00 > 2\.5") as caught:
        pb.vmap(checked, in_axes=(0, None))(x, 2.5)
    assert any("in row 2" in note for note in caught.value.__notes__)
    assert np.array_equal(pb.vmap(checked, in_axes=(0, None))(x, 5.0), x + 5)


def test_values_of_messages_are_not_compiled() -> None:
    def checked(x: Any) -> Any:
        if x[0] > 3:
            raise ValueError(f"{np.sum(np.sin(x)):.3f}")
        return x * 2

    traced = trace(checked, (np.ones(3),)).function
    names = [{i.op.name for i in walk(f.body)} for f in (traced, templated(traced).function)]
    assert "sin" in names[0]
    assert "sin" not in names[1]


def test_a_text_that_is_returned_is_made_of_the_values() -> None:
    def titled(x: Any, y: Any) -> Any:
        text = f"{x:.2f}" if x > 0 else "none"
        return {"title": text, "both": "%s|%r" % (y, x)}, y + 1  # noqa: UP031

    function = pb.jit(titled, guards=False)
    for x in (2.0, -2.0):
        for y in (np.float32(1.5), np.arange(3.0)):
            (texts, _), (expected, _) = function(x, y), titled(x, y)
            assert texts == expected


def test_an_error_inside_a_try_statement_is_a_branch() -> None:
    def caught(x: Any) -> Any:
        try:
            if x > 0:
                raise ValueError(f"{x}")
        except ValueError:
            return -x
        return x

    compiled = pb.jit(caught, guards=False)
    assert (compiled(1.0), compiled(-2.0)) == (-1.0, -2.0)


def test_an_error_behind_a_try_statement_is_raised() -> None:
    def behind(x: Any) -> Any:
        try:
            scale = {"a": 2.0}["b"]
        except KeyError:
            scale = 3.0
        if x > 1:
            raise ValueError(f"{scale * x}")
        return x * scale

    assert outcome(pb.jit(behind, guards=False), (2.0,)) == outcome(behind, (2.0,))
    assert pb.jit(behind, guards=False)(0.5) == 1.5


FALSE_ASSERTIONS = """
def under_a_branch(x, n=3):
    if x[0] > 1:
        assert n == 2, f"n is {n} at {x[0]}"
        x = x * 2
    return x + 1

def in_a_loop(x):
    total = 0.0
    for value in x:
        if value > 1:
            assert len(x) == 2
        total += value
    return total

def always(x):
    for value in x:
        if value > 1:
            assert False, "never"
    return x
"""


@pytest.mark.parametrize("name", ["under_a_branch", "in_a_loop", "always"])
def test_an_assertion_that_is_false_on_one_path_is_a_check(name: str) -> None:
    function = from_text(FALSE_ASSERTIONS, name)
    compiled = pb.jit(function, guards=False)
    x = np.array([0.5, 0.25, -1.0])
    assert np.array_equal(compiled(x), function(x))
    with pytest.raises(AssertionError) as expected:
        function(4 * x)
    with pytest.raises(AssertionError) as raised:
        compiled(4 * x)
    assert str(raised.value) == str(expected.value)


def test_a_raise_statement_of_what_is_no_exception() -> None:
    def checked(x: Any) -> Any:
        if x[0] < 0:
            raise NotImplemented("negative")  # noqa: F901
        return x * 2

    compiled = pb.jit(checked, guards=False)
    np.testing.assert_array_equal(compiled(np.ones(3)), np.full(3, 2.0))
    with pytest.raises(TypeError, match="not callable"):
        compiled(-np.ones(3))


def test_numbers_that_are_pythons_on_one_path_keep_their_type() -> None:
    def raises(x: Any, a: Any) -> Any:
        m = 1 if x > 0 else a[0]
        if x < 5:
            raise KeyError(m, [m])
        return {0: x}[m]

    compiled = pb.jit(raises)
    for x in (1.0, -1.0, 7.0, -2.0):
        with pytest.raises(KeyError) as raised:
            compiled(x, np.array([3, 4]))
        with pytest.raises(KeyError) as expected:
            raises(x, np.array([3, 4]))
        assert repr(raised.value) == repr(expected.value)


def test_exceptions_without_arguments_have_none() -> None:
    def raises(x: float, k: int) -> None:
        if x > 0:
            if k == 0:
                raise ValueError
            if k == 1:
                raise ValueError("")
            if k == 2:
                raise KeyError()

    compiled = pb.jit(raises)
    for k in range(3):
        with pytest.raises((ValueError, KeyError)) as raised:
            compiled(1.0, k)
        with pytest.raises((ValueError, KeyError)) as expected:
            raises(1.0, k)
        assert repr(raised.value) == repr(expected.value)
