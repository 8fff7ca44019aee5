"""Effects of traced functions: a call prints what the plain function prints, in the order of Python, whatever the transform."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb

INPUTS = np.array([0.5, 1.5, -2.5]), np.array([0.25, 2.5, 1.0])
Pair = namedtuple("Pair", "a b")


@dataclass
class Point:
    x: Any
    name: str


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Plain({self.value!r})"


class Recorder:
    """A file whose texts are kept."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> None:
        self.texts.append(text)


class Broken:
    """A file that cannot be written."""

    def write(self, text: str) -> None:
        raise BrokenPipeError("closed")


RECORDER, BROKEN, OUTSIDE = Recorder(), Broken(), Plain(3)
alias = print


def values(x: Any) -> Any:
    print("x", x, x[0], x.sum(), 2, None, "{}", x.shape, len(x), sep=" | ", end="!\n")
    print([x[0], 1], {"a": x.mean()}, (x[1] > 0, None), x > 0, x.astype(np.float32)[0], Pair(x[0], 1))
    print()
    return 2 * x


def numbers(x: Any) -> Any:
    a = float(x[0])
    print(a, [a], int(x[1]), bool(x[0] > 0), a > 0.3, np.float32(a), 1j * a)
    return a


def objects(x: Any) -> Any:
    p = Plain(x[0])
    print(p, [p, OUTSIDE], Point(x[1], "p"), {1, 2}, Plain([Plain(x[2])]))
    p.value = 1
    return x


def texts(x: Any) -> Any:
    y = 2 * x
    print(f"y {y[0]:.3f} {y} {x.shape} {y[1]!r:>20}", y[0])
    print("%.2f and %s" % (y[1], y[0]), "{:.1e}".format(y[2]), str(y[0]), repr(y[0]))  # noqa: UP031, UP032
    return y


def written(x: Any) -> Any:
    print(x)
    x[0] = 5.0
    print(x, x[:2])
    return x.sum()


def mixed(x: Any) -> Any:
    q = max(0, x[2])
    print(q, [q], f"{q:.2f}")
    return q


def cases(x: Any) -> Any:
    best = None if x[1] > 2 else x[1]
    name = "open" if x[0] > 0.3 else "closed"
    print(best, name)
    return x


def branch(x: Any) -> Any:
    if x[0] > 0.4:
        print("big", x[0])
        y = x * 2
    else:
        print("small", x[0])
        y = x
    print("after")
    return y.sum()


def nested(x: Any) -> Any:
    for k in range(3):
        if x[k] > 0:
            if x[k] > 1:
                print("more", k)
                continue
            print("positive", k, x[k])
    return x if x[2] > 0 else (print("ends"), -x)[1]


def loop(x: Any) -> Any:
    s = 0.0
    for i in range(300):
        s = s + x[0] * i
        if i % 100 == 0:
            print("step", i, s, f"{s:.3f}")
    return s


def each_turn(x: Any) -> Any:
    s = x[0]
    for i in range(250):
        s = s + 1
        print(i, end=",")
    print(flush=True)
    return s


def while_loop(x: Any) -> Any:
    s, n = x[0], 0
    while s < 100:
        s, n = s * 2 + 1, n + 1
        print(n, s)
    print("done", n)
    return s


def left(x: Any) -> Any:
    for i in range(1000):
        print("try", i)
        if x[0] * i > 2:
            print("found")
            return i
    return -1


def two_loops(x: Any) -> Any:
    for i in range(3):
        print("row", i)
        for j in range(250):
            if x[0] * j > 20 * (i + 1):
                print("", i, j)
                break
    return x


def fails(x: Any) -> Any:
    print("before", x[0])
    if x[0] > 0:
        raise ValueError(f"bad {x[0]}")
    print("never")
    return x


def fails_in_a_loop(x: Any) -> Any:
    for i in range(1000):
        print("i", i)
        if x[0] * i > 2:
            raise ValueError(f"bad {i}")
    return x


def fails_by_index(x: Any) -> Any:
    print("a", x[0])
    y = x[int(x[1]) + 10]
    print("b")
    return y


def handled(x: Any) -> Any:
    try:
        print("try")
        if x[0] > 0.3:
            raise KeyError("k")
        print("fine")
    except KeyError:
        print("handled")
    finally:
        print("finally")
    return x


def growing(x: Any) -> Any:
    kept = []
    for i in range(500):
        if x[0] * i > 3 and i % 100 == 0:
            kept.append(x[0] * i)
    print(kept, len(kept))
    return x


def keyed(x: Any) -> Any:
    counts: dict[Any, Any] = {}
    for v in np.floor(np.repeat(x, 100)).astype(int):
        counts[v] = counts.get(v, 0) + 1
    print(counts)
    return x


def sets(x: Any) -> Any:
    seen = {1, 2}
    seen.add(int(x[1]) + 3)
    print(seen, frozenset(seen), [seen], {int(x[1]): seen})
    seen.add(9)
    print(seen)
    return x


def lengths(x: Any) -> Any:
    print(x[x > 0], np.unique(np.sign(x)), np.arange(int(x[1])))
    return x


def to_files(x: Any) -> Any:
    print("out", x[0], file=sys.stdout)
    print("err", x[0], file=sys.stderr)
    print("none", file=None, flush=True)
    return x


def to_an_object(x: Any) -> Any:
    print("kept", x[0], file=RECORDER)
    return x


def called_otherwise(x: Any) -> Any:
    alias("alias", x)
    (print if len(x) > 1 else alias)("chosen")
    functools.partial(print, "partial", sep="-")(x[0])
    [print(v) for v in x]
    return x


def helper(x: Any) -> Any:
    print("in helper", x)
    return x + 1


def calls(x: Any) -> Any:
    return helper(helper(x)) * 2


def only_constants(x: Any) -> Any:
    print("hello", 3, np.arange(3))
    return 1.0


PROGRAMS = [
    values, numbers, objects, texts, written, mixed, cases, branch, nested, loop, each_turn, while_loop, left, two_loops, fails,
    fails_in_a_loop, fails_by_index, handled, growing, keyed, sets, lengths, to_files,
    to_an_object, called_otherwise, calls, only_constants,
]  # fmt: skip


def outcome(function: Callable[..., Any], x: Any) -> tuple[str, str, list[str], str]:
    """Return what a call writes, and its result or error, as texts."""
    out, err = io.StringIO(), io.StringIO()
    RECORDER.texts.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            result = repr(function(x.copy()))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return out.getvalue(), err.getvalue(), list(RECORDER.texts), result


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_a_call_prints_what_python_prints(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    for x in (*INPUTS, *INPUTS):
        expected = outcome(function, x)
        assert outcome(compiled, x) == expected
        assert any(expected[:3])


def printing(x: Any) -> Any:
    s = 0.0
    for i in range(300):
        s = s + np.sin(x[0] * i) * x[1]
        if i % 100 == 0:
            print("i", i, f"{s:.2f}")
    print("end")
    return s


TEXT = outcome(printing, INPUTS[0])[0]


@pytest.mark.parametrize(
    "transformed",
    [pb.grad(printing), pb.value_and_grad(printing), pb.hessian(printing), pb.jacfwd(printing), pb.jacrev(printing),
     pb.jit(pb.jit(printing)), pb.jit(printing, dynamic=True), pb.jit(printing, guards=True),
     pb.grad(pb.checkpoint(printing)), pb.hessian(pb.checkpoint(printing)), lambda x: pb.jvp(printing, (x,), (x,)),
     pb.jit(pb.grad(pb.jit(printing)))],
    ids=range(12),
)  # fmt: skip
def test_every_transform_prints_once(transformed: Callable[..., Any]) -> None:
    for _ in range(2):
        assert outcome(transformed, INPUTS[0])[0] == TEXT


def test_gradients_beside_effects() -> None:
    def each(x: Any) -> Any:
        y, n = x[0], 0
        while y < 50:
            y, n = y * x[1] + x[2] ** 2, n + 1
            print(n, y)
        return y * n

    x, step = np.array([0.5, 1.5, 0.7]), 1e-6
    with contextlib.redirect_stdout(io.StringIO()):
        slopes = [(each(x + step * e) - each(x - step * e)) / (2 * step) for e in np.eye(3)]
        np.testing.assert_allclose(pb.grad(each)(x), slopes, rtol=1e-6)
        rows = [(pb.grad(each)(x + step * e) - pb.grad(each)(x - step * e)) / (2 * step) for e in np.eye(3)]
        np.testing.assert_allclose(pb.hessian(each)(x), rows, rtol=1e-5)


def test_a_checkpoint_prints_once(capsys: Any) -> None:
    @pb.checkpoint
    def layer(x: Any) -> Any:
        y = np.sin(x)
        print("layer", y[0])
        return np.sin(y)

    x = INPUTS[0]
    layer(layer(x))
    expected = capsys.readouterr().out
    for derivative in (pb.grad, pb.hessian):
        derivative(lambda x: layer(layer(x)).sum())(x)
        assert capsys.readouterr().out == expected


def test_rows_print_in_the_order_of_a_loop(capsys: Any) -> None:
    def row(x: Any) -> Any:
        y = x * 2
        print("row", x, y[0], f"{y[1]:.1f}")
        return y.sum()

    x = np.arange(6.0).reshape(3, 2)
    for r in x:
        row(r)
    expected = capsys.readouterr().out
    for mapped in (pb.vmap(row), pb.vmap(pb.grad(row)), pb.jit(lambda x: pb.vmap(row)(x))):
        mapped(x)
        assert capsys.readouterr().out == expected


def twice(x: Any) -> Any:
    print("a", x)
    print("b", x)
    return x


def under_a_condition(x: Any) -> Any:
    if x > 0:
        print("positive")
    return x


@pytest.mark.parametrize("function", [twice, under_a_condition])
def test_rows_whose_order_is_not_that_of_a_loop_are_refused(function: Callable[..., Any], capsys: Any) -> None:
    with pytest.raises(pb.TraceError, match=r"print in a row of pb\.vmap"):
        pb.vmap(function)(np.ones(3))
    assert capsys.readouterr().out == ""


def test_an_error_of_an_effect_has_the_users_lines_and_nothing_is_stored() -> None:
    def inner(x: Any) -> None:
        print("x", x[0], file=BROKEN)  # fails here

    @pb.jit
    def outer(x: Any) -> Any:
        x[0] = 7.0
        inner(x)
        return x

    x = INPUTS[0].copy()
    for _ in range(2):
        with pytest.raises(BrokenPipeError) as caught:
            outer(x)
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert [f.name for f in frames][-3:] == ["outer", "inner", "write"]
        assert (frames[-2].line or "").endswith("# fails here")
        np.testing.assert_array_equal(x, INPUTS[0])


def divided(q: float) -> float:
    try:
        print("begins")
        r = 1.0 / q
    finally:
        if q <= 0.5:
            print("ends", q)
    return r


def reported(q: float) -> None:
    print("reports", q)


def divided_by_functions(q: float) -> float:
    try:
        try:
            r = 1.0 / q
        finally:
            reported(q)
        r = 2.0 / (q - 1.0)
    except ValueError:
        r = 3.0
    return r


def raised_instead(q: float) -> float:
    try:
        r = 1.0 / q
    finally:
        if q < 1.0:
            raise ValueError("small")
    return r


class Quiet:
    """A context that suppresses divisions by zero."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return kind is not None and issubclass(kind, ZeroDivisionError)


class Loud:
    """A context that prints."""

    def __enter__(self) -> None:
        print("enters")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        print("exits", kind is None)


@contextlib.contextmanager
def guarded() -> Iterator[float]:
    print("guards")
    try:
        yield 3.0
    except ZeroDivisionError:
        print("guarded")


def suppressed(q: float) -> float:
    r = 0.0
    with Quiet():
        for k in range(3):
            r += 1.0 / (q - k)
    return r


def loudly(q: float) -> float:
    with Loud():
        r = 1.0 / q
        if r > 2.0:
            raise ValueError("large")
    return r


def by_a_generator(q: float) -> float:
    r = 0.0
    with guarded() as k:
        r = k / q
    return r + 0.5


def suppressed_by_a_local_class(q: float) -> float:
    class Local:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: Any) -> bool:
            return True

    r = 0.0
    with Local():
        r = 1.0 / q
    return r + 0.5


def left_by_a_finally_clause(q: float) -> float:
    while True:
        try:
            q = 1.0 / q
        finally:
            break  # noqa: B012
    return q + 0.5


def popped(q: float) -> float:
    items: list[float] = []
    while q > 10.0:
        q *= 0.5
    print(f"{q:.2f}")
    return items.pop()


def looked_up(q: float) -> float:
    r = 1.0 / (q - 2.0)
    print("divided")
    table = {0.0: q}
    table.clear()
    return r + table[int(q)]


ENDS = [
    divided, divided_by_functions, raised_instead, suppressed, loudly, by_a_generator, suppressed_by_a_local_class,
    left_by_a_finally_clause, popped, looked_up,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.filterwarnings("ignore:'break' in a 'finally' block:SyntaxWarning")
@pytest.mark.parametrize("function", ENDS)
def test_what_is_printed_before_an_error_and_at_the_end_of_a_statement(function: Callable[..., Any], capsys: Any) -> None:
    compiled = pb.jit(function)
    for q in (1.0, 0.0, 0.25, 0.0, 4.0, 2.0, 1.0):
        outcomes = []
        for f in (compiled, function):
            try:
                result: Any = f(q)
            except Exception as error:
                result = type(error), error.args
            outcomes.append((result, capsys.readouterr().out))
        assert outcomes[0] == outcomes[1]


def test_effects_of_the_trace(capsys: Any) -> None:
    def f(x: Any) -> Any:
        print("x", x)
        return x

    compiled = pb.jit(f, effects="trace")
    compiled(INPUTS[0]), compiled(INPUTS[1])
    assert capsys.readouterr().out == "x traced f64[3] x\n"
    inner = pb.jit(lambda x: compiled(x) + f(x))
    inner(INPUTS[0])
    assert capsys.readouterr().out == f"x traced f64[3] x\nx {INPUTS[0]}\n"
    with pytest.raises(ValueError, match="effects='never'"):
        pb.jit(f, effects="never")  # type: ignore[call-overload]


def test_a_file_that_the_function_made_is_refused() -> None:
    def f(x: Any) -> Any:
        page = io.StringIO()
        print(x, file=page)
        return page.getvalue()

    with pytest.raises(pb.TraceError, match="print into a file that the function made"):
        pb.jit(f)(INPUTS[0])
