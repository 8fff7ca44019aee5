"""``pb.jit(debug=True)``: a call stops at the first step that makes a NaN, an infinity or a number out of range."""

import inspect
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, logit, logsumexp, xlogy

import pullback as pb
from tests.support.api import traces


def entropy(x: Any) -> Any:
    p = np.exp(x)  # exp
    q = p / p.sum()
    return -np.sum(q * np.log(q))


def root(x: Any) -> Any:
    return np.sum(np.sqrt(x))  # root


def scanned(x: Any) -> Any:
    def body(s: Any, k: Any) -> Any:
        s = s * s * x  # body
        return s, np.log1p(s)

    return pb.scan(body, x, np.arange(20))[1].sum()


def repeated(x: Any) -> Any:
    def body(s: Any) -> Any:
        return s[0] - 1, 1 / (s[0] - 2) + s[1]  # body

    return pb.while_loop(lambda s: s[0] > 0.0, body, (x, 0.0))[1]


def branched(x: Any) -> Any:
    return pb.cond(x > 0, lambda x: x + 1, lambda x: np.log(x), x)  # cond


def line_of(function: Callable[..., Any], mark: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return next(start + k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))


# the function with the marked line, what is called, arguments, the mark, words of the message
WRONG: dict[str, tuple[Any, Any, tuple[Any, ...], str, tuple[str, ...]]] = {
    "overflow": (entropy, entropy, (np.array([0.0, 800.0]),), "exp", ("gives inf at [1] (1 of 2 values)", "800.0 there")),
    "gradient, forward": (entropy, pb.grad(entropy), (np.array([0.0, 800.0]),), "exp", ("in the forward part",)),
    "gradient, backward": (root, pb.grad(root), (np.array([1.0, 0.0]),), "root", ("pullback(sqrt)", "in the backward part")),
    "value and gradient": (root, pb.value_and_grad(root), (np.array([4.0, 0.0]),), "root", ("pullback(sqrt)", "at [1]")),
    "invalid": (root, root, (np.array([4.0, -1.0]),), "root", ("sqrt at", "gives nan at [1]", "-1.0 there, from -1.0 to 4.0")),
    "scan": (scanned, scanned, (4.0,), "body", ("mul", "gives inf, in turn 8")),
    "gradient of a scan": (scanned, pb.grad(scanned), (4.0,), "body", ("in turn 8, in the forward part",)),
    "while": (repeated, repeated, (np.float64(5.0),), "body", ("div", "gives inf, in turn 3")),
    "branch": (branched, branched, (-1.0,), "cond", ("log", "gives nan")),
    "vmap": (root, pb.vmap(root), (np.array([[1.0, 2.0], [3.0, -4.0]]),), "root", ("sqrt", "at [1, 1]")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_first_step_is_named(name: str) -> None:
    plain, call, args, mark, words = WRONG[name]
    with pytest.raises(FloatingPointError) as caught:
        pb.jit(call, debug=True)(*args)
    line = line_of(plain, mark)
    text = str(caught.value)
    assert text.startswith("debug: ") and f"test_debug_mode.py:{line}" in text
    assert all(word in text for word in words), text
    assert "pb.find_nan" in text
    assert [f.lineno for f in traceback.extract_tb(caught.value.__traceback__)][-1] == line
    assert pb.tree.leaves(pb.jit(call)(*args))


def safe(x: Any) -> Any:
    return np.sum(np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0))


def unsafe(x: Any) -> Any:
    return np.sum(np.where(x > 0, np.exp(-1 / x) + np.log(x), 0.0))


def moved(x: Any) -> Any:
    y = np.log(x)
    return np.concatenate([y[2:], y[::-1][:-2].T])[None].sum() + np.flip(y)[0] + y[np.array([2, 3])].sum()


def masked(x: Any) -> Any:
    scores = np.where(x > 1, x, -np.inf)
    e = np.exp(scores - scores.max())
    return np.sum(e / e.sum())


FINE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a guarded argument": (safe, (np.array([0.0, -1.0, 2.0]),)),
    "a branch that is not taken": (unsafe, (np.array([0.0, -1.0, 2.0]),)),
    "its gradient": (pb.grad(unsafe), (np.array([0.0, -1.0, 2.0]),)),
    "parts that nothing reads": (moved, (np.array([0.0, -1.0, 2.0, 3.0]),)),
    "infinities of the program": (masked, (np.array([0.0, 2.0, 3.0]),)),
    "and their gradient": (pb.grad(masked), (np.array([0.0, 2.0, 3.0]),)),
    "clipped": (lambda x: np.maximum(np.log(x), -5.0).sum(), (np.array([0.0, 2.0]),)),
    "the largest": (lambda x: np.log(x).max(), (np.array([0.0, 2.0]),)),
    "asked for": (lambda x: np.where(np.isfinite(y := 1 / x), y, 0.0).sum(), (np.array([0.0, 2.0]),)),
    "missing values": (lambda x: np.nanmean(x), (np.array([np.nan, 2.0]),)),
    "given": (lambda x: x * 2, (np.array([np.nan, np.inf]),)),
    "integers": (lambda k: k // 2 + (k << 3) + k % 5, (np.arange(5),)),
    "a branch": (branched, (3.0,)),
    "a loop": (scanned, (0.5,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_does_not_matter_is_passed_over(name: str) -> None:
    function, args = FINE[name]
    np.testing.assert_array_equal(pb.jit(function, debug=True)(*args), pb.jit(function)(*args))


def drawn(key: Any) -> Any:
    a, b, c = pb.random.split(key, 3)
    return pb.random.normal(a, (20,)), pb.random.gamma(b, 2.0, (5,)), pb.random.poisson(c, 3.0, (5,)), pb.random.permutation(a, 9)


SQUARE = np.linspace(0.1, 1.0, 16).reshape(4, 4) + np.eye(4)
ORDINARY: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "random numbers": (drawn, (pb.random.key(0),)),
    "norm at zero": (pb.grad(lambda x: np.sqrt(np.sum(x**2))), (np.zeros(3),)),
    "powers at zero": (pb.grad(lambda x: np.sum(x**2.0 + x**1.5)), (np.zeros(3),)),
    "product with a zero": (pb.grad(lambda x: np.prod(x) + np.cumprod(x)[-1]), (np.arange(3.0),)),
    "special functions": (pb.grad(lambda x: np.sum(gammaln(x) + logit(x) + xlogy(x, x))), (np.linspace(0.1, 0.9, 9),)),
    "linear algebra": (pb.grad(lambda a: np.linalg.slogdet(a)[1] + np.linalg.inv(a).sum()), (SQUARE,)),
    "singular values": (pb.grad(lambda a: np.linalg.svd(a, compute_uv=False).sum()), (SQUARE,)),
    "sort": (pb.grad(lambda x: np.sum(np.sort(x) * np.arange(9.0))), (np.linspace(1, -1, 9),)),
    "spectrum": (pb.grad(lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2)), (np.linspace(1, -1, 9),)),
    "histogram": (lambda x: np.histogram(x, bins=5, range=(0.0, 1.0)), (np.linspace(0, 1, 9),)),
    "a solution": (pb.grad(lambda a: pb.odeint(lambda y, t, a: -a * y, np.ones(2), np.linspace(0, 1, 3), a)[-1].sum()), (0.5,)),
    "large exponents": (pb.grad(lambda x: logsumexp(x * 1000)), (np.linspace(-1, 1, 9),)),
    "floors": (lambda x: np.floor_divide(x, 0.3) + np.mod(x, 0.3), (np.linspace(-1, 1, 9),)),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_programs_pass(name: str) -> None:
    function, args = ORDINARY[name]
    result, expected = (pb.tree.leaves(pb.jit(function, debug=debug)(*args)) for debug in (True, False))
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_absorbed_by_arithmetic_matters() -> None:
    with pytest.raises(FloatingPointError, match="log at"):
        pb.jit(lambda x: np.exp(np.log(x)), debug=True)(0.0)
    with pytest.raises(FloatingPointError, match="div at"):
        pb.jit(lambda x: 1 / (1 / x), debug=True)(np.zeros(2))


RANGES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "cast": (lambda x: x.astype(np.int32), (np.array([1.0, 3e9]),), "cast at .* gives .* at [1] (1 of 2 values), out of range"),
    "cast of nan": (lambda x: x.astype(int), (np.array([np.nan]),), "out of range"),
    "by zero": (lambda a, b: a // b, (np.arange(3), np.array([1, 0, 2])), "floordiv at .* gives 0 at [1]"),
    "the rest by zero": (lambda a, b: a % b, (np.array([7]), np.array([0])), "mod at .* out of range"),
    "shift": (lambda a, b: a << b, (np.ones(2, int), np.array([1, 64])), "shl at .* at [1]"),
    "the smallest by -1": (lambda a, b: a // b, (np.array([-(2**63)]), np.array([-1])), "floordiv"),
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_integers_out_of_range(name: str) -> None:
    function, args, words = RANGES[name]
    pattern = words.replace("[", r"\[").replace("]", r"\]").replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(FloatingPointError, match=pattern):
        pb.jit(function, debug=True)(*args)


def test_a_guarded_division_of_integers() -> None:
    f = pb.jit(lambda a, b: np.where(b != 0, a // b, -1), debug=True)
    np.testing.assert_array_equal(f(np.arange(3), np.array([1, 0, 2])), [0, -1, 1])


def test_an_index_out_of_range_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="7"):
        pb.jit(lambda x, k: x[k], debug=True)(np.ones(3), 7)


# how it goes with the rest


class Model:
    scale = 0.0

    @pb.jit(debug=True)
    def divided(self, x: Any) -> Any:
        return x / self.scale


def test_transforms_of_it_and_methods() -> None:
    debugged = pb.jit(root, debug=True)
    with pytest.raises(FloatingPointError, match=r"pullback\(sqrt\)"):
        pb.grad(debugged)(np.zeros(2))
    with pytest.raises(FloatingPointError, match=r"pullback\(sqrt\)"):
        pb.jit(pb.value_and_grad(debugged))(np.zeros(2))
    assert pb.grad(debugged)(np.ones(2)).tolist() == [0.5, 0.5]
    with pytest.raises(FloatingPointError, match="div at"):
        Model().divided(np.float64(1.0))
    with pytest.raises(FloatingPointError, match="sqrt"):
        pickle.loads(pickle.dumps(ROOT))(np.array([-1.0]))


ROOT = pb.jit(root, debug=True)


def test_inside_another_function_it_is_part_of_it() -> None:
    np.testing.assert_equal(pb.jit(lambda x: ROOT(x))(np.array([-1.0])), np.nan)


def test_effects_happen_once(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        pb.print("x", x)
        x[0] = np.log(x[1])
        return x.sum()

    x = np.array([3.0, 1.0])
    assert pb.jit(f, debug=True)(x) == 1.0 and x[0] == 0.0
    assert capsys.readouterr().out == "x [3. 1.]\n"
    x = np.array([3.0, 0.0])
    with pytest.raises(FloatingPointError):
        pb.jit(f, debug=True)(x)
    assert x[0] == 3.0 and capsys.readouterr().out == ""


def test_with_check_and_with_guards() -> None:
    f = pb.jit(lambda x: np.log(x) if x > 1 else np.sqrt(x), debug=True, check=True, guards=True)
    assert f(4.0) == np.log(4.0) and f(0.25) == 0.5
    with pytest.raises(FloatingPointError, match="sqrt"):
        f(-1.0)


def test_the_function_is_traced_once_for_a_signature() -> None:
    f = pb.jit(lambda x: np.sqrt(x), debug=True)
    f(1.0)
    before = traces()
    assert (f(4.0), f(9.0)) == (2.0, 3.0) and traces() == before


def test_raising_in_errstate_names_this() -> None:
    def f(x: Any) -> Any:
        with np.errstate(all="raise"):
            return 1 / x

    with pytest.raises(pb.TraceError, match=r"pb\.jit\(debug=True\)"):
        pb.jit(f)(1.0)
