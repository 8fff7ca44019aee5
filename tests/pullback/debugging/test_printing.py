"""``pb.print`` and ``pb.print_grad``: the same text as a plain run, once, in order, whatever the transform."""

import io
import sys
import threading
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module
from pullback.ir.verify import verify_module
from pullback.runtime.process import counters
from pullback.tracer.user_code.source import shown

X = np.array([0.5, 1.5, -2.5])
Pair = namedtuple("Pair", "a b")
LABEL = "first"


@dataclass
class Point:
    x: Any
    name: str


def several(x: Any) -> Any:
    y = x[::-1] * 2
    pb.print("y", y, y.sum(), sep=": ", end=" |\n")
    pb.print(x[0], x.astype(np.float32), x > 0, (x > 0).sum(), np.zeros((0, 2)) + x[0])
    pb.print(x.reshape(3, 1) * x, "{braces}", None, x.shape, len(x))
    return y


def containers(x: Any) -> Any:
    pb.print({"a": x, "b": [x[0], None, "t"]}, Pair(x, (1, 2.5)), Point(x.sum(), "p"), {1, 2}, [], np.arange(3))
    return x


def formats(x: Any) -> Any:
    pb.print("{x:.2f} {s:8.3e}|{s!r:>30}|{n:03d} {t!r} {d[a]:.1f} {w:{width}} {{}} {d}", x=x, s=x.sum(), n=7, t="q{",
             d={"a": x[1]}, w=x[0], width=12)  # fmt: skip
    return x


def nothing_else(x: Any) -> Any:
    pb.print()
    pb.print("only text")
    pb.print(x, end="")
    return 1.0


def loops(x: Any) -> Any:
    for k in range(3):
        pb.print(k, x)
        pb.print(k, x)
        x = x + 1.0
    return x.sum()


PROGRAMS = [several, containers, formats, nothing_else, loops]


@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.parametrize("x", [X, X[::-1], np.arange(6.0)[::2], X.astype(np.float32)], ids=["plain", "back", "strided", "f32"])
def test_the_text_of_a_plain_run(f: Any, x: Any, capsys: Any) -> None:
    f(x)
    expected = capsys.readouterr().out
    compiled = pb.jit(f)
    for _ in range(2):
        compiled(x)
        assert capsys.readouterr().out == expected


def test_python_numbers_print_as_such(capsys: Any) -> None:
    def f(a: float, n: int, flag: bool) -> Any:
        pb.print(a, n, flag, [a, n, flag, a * 2])
        return a

    f(2.0, 3, True)
    expected = capsys.readouterr().out
    pb.jit(f)(2.0, 3, True)
    assert capsys.readouterr().out == expected == "2.0 3 True [2.0, 3, True, 4.0]\n"


def loss(x: Any) -> Any:
    pb.print("x", x)
    h = pb.print_grad(np.sin(x), "h")
    value = np.sum(h * h)
    pb.print("value {v:.4f}", v=value)
    return value


FORWARD = f"x {X}\nvalue {np.sum(np.sin(X) ** 2):.4f}\n"
BACKWARD = f"h: {2 * np.sin(X)}\n"
TRANSFORMED = [
    (pb.jit(loss), FORWARD),
    (pb.jit(pb.jit(loss)), FORWARD),
    (pb.grad(loss), FORWARD + BACKWARD),
    (pb.jit(pb.grad(loss)), FORWARD + BACKWARD),
    (pb.value_and_grad(pb.jit(loss)), FORWARD + BACKWARD),
    (pb.jit(lambda x: np.sum(pb.grad(loss)(x) * x) + loss(x)), FORWARD + BACKWARD + FORWARD),
]


@pytest.mark.parametrize("f, expected", TRANSFORMED, ids=range(len(TRANSFORMED)))
def test_forward_values_once_and_cotangents_where_they_arrive(f: Any, expected: str, capsys: Any) -> None:
    for _ in range(2):
        f(X)
        assert capsys.readouterr().out == expected


def test_each_order_prints_its_own_cotangent(capsys: Any) -> None:
    def cube(x: Any) -> Any:
        return pb.print_grad(x, "x") ** 3

    assert pb.grad(pb.grad(cube))(2.0) == 12.0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "x: 12.0" and len(lines) == 2


def test_a_cotangent_under_a_predicate_stays_under_it(capsys: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.where(x > 0, pb.print_grad(np.sqrt(np.where(x > 0, x, 0.0)), "root"), 0.0))

    x = np.array([4.0, 0.0, -1.0])
    np.testing.assert_array_equal(pb.grad(f)(x), [0.25, 0.0, 0.0])
    assert capsys.readouterr().out == "root: [1. 0. 0.]\n"


def test_cotangents_of_a_tree_and_the_users_line(capsys: Any) -> None:
    def f(p: Any) -> Any:
        q = pb.print_grad({**p, "n": 3})
        return np.sum(q["w"] * 2) + q["b"] * q["n"]

    line = f.__code__.co_firstlineno + 1
    gradient = pb.grad(f)({"w": np.ones(2, np.float32), "b": 1.0})
    assert gradient["b"] == 3.0
    out = capsys.readouterr().out.splitlines()
    at = f"{shown(__file__)}:{line}"
    assert sorted(out) == [f"cotangent at {at}: 3.0", f"cotangent at {at}: [2. 2.]"]
    assert f({"w": np.ones(2), "b": 1.0}) == 7.0
    assert capsys.readouterr().out == ""


def test_results_and_kernels_do_not_depend_on_the_text(capsys: Any) -> None:
    def f(x: Any, label: str) -> Any:
        if label:
            pb.print(label, x)
        return np.sum(np.exp(x) * x), np.cumsum(x)

    x = np.linspace(-3.0, 3.0, 1001)
    g = pb.jit(f)
    quiet, first = g(x, ""), g(x, "one")
    before = counters.snapshot().compiles
    second = g(x, "two")
    assert counters.snapshot().compiles == before
    for result in (first, second):
        assert all(np.array_equal(a, b) for a, b in zip(quiet, result, strict=True))
    assert capsys.readouterr().out == f"one {x}\ntwo {x}\n"


def test_a_changed_label_from_outside_is_seen(capsys: Any) -> None:
    global LABEL

    @pb.jit
    def f(x: Any) -> Any:
        pb.print(LABEL, x)
        return x

    f(1.0)
    LABEL = "second"
    f(1.0)
    assert capsys.readouterr().out == "first 1.0\nsecond 1.0\n"


def test_prints_before_a_failure_are_seen_and_once(capsys: Any) -> None:
    def f(x: Any, i: Any) -> Any:
        pb.print("before", i)
        y = x[i]
        pb.print("after", y)
        return y

    g = pb.jit(f)
    assert g(X, np.array([1])) == X[1]
    assert capsys.readouterr().out == "before [1]\nafter [1.5]\n"
    with pytest.raises(IndexError):
        g(X, np.array([5]))
    assert capsys.readouterr().out == "before [5]\n"


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise self.error  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt(), ValueError("text")])
def test_what_writing_raises_comes_out_of_the_call(error: BaseException, monkeypatch: Any, capsys: Any) -> None:
    g = pb.jit(pb.grad(loss))
    expected = g(X)
    full = Full()
    full.error = error  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(type(error)):
            g(X)
    capsys.readouterr()
    np.testing.assert_array_equal(g(X), expected)
    assert capsys.readouterr().out == FORWARD + BACKWARD


def test_writing_may_call_compiled_functions(monkeypatch: Any) -> None:
    g = pb.jit(loss)

    class Nested(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("x"):
                monkeypatch.setattr(sys, "stdout", inner)
                g(2 * X)
                monkeypatch.setattr(sys, "stdout", outer)
            return super().write(text)

    outer, inner = Nested(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", outer)
    g(X)
    assert outer.getvalue() == FORWARD
    assert inner.getvalue().startswith(f"x {2 * X}\n")


def test_threads(capsys: Any) -> None:
    g = pb.jit(pb.grad(loss))
    lines: list[str] = []

    def work(k: int) -> None:
        for _ in range(30):
            g(X * k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = capsys.readouterr().out.splitlines()
    for k in range(1, 5):
        assert lines.count(f"x {X * k}") == lines.count(f"h: {2 * np.sin(X * k)}") == 30
    assert len(lines) == 4 * 3 * 30


@pytest.mark.parametrize("stage", ["trace", "grad", "simplify", "fuse", "lower"])
def test_every_stage_is_text_that_runs(stage: str, capsys: Any) -> None:
    text = pb.grad(loss).stages(X)[stage]
    if stage == "trace":
        text = pb.jit(loss).stages(X)[stage]
    module = verify_module(parse_module(text))
    interpret(module.functions[0], X, module=module)
    assert capsys.readouterr().out == (FORWARD if stage == "trace" else FORWARD + BACKWARD)


def test_prints_of_what_is_not_used(capsys: Any) -> None:
    @pb.jit
    def f(x: Any) -> Any:
        pb.grad(lambda x: (pb.print("inner", x), np.sum(x))[1])(x)
        return x

    assert pb.jit(lambda x: pb.print("only", x))(X) is None
    assert f(X) is X
    assert capsys.readouterr().out == f"only {X}\ninner {X}\n"


def test_the_builtin_prints_once_while_tracing_where_effects_are_of_the_trace(capsys: Any) -> None:
    @pb.jit(effects="trace")
    def f(x: Any) -> Any:
        print("tracing", x)
        return x * 2

    f(X), f(X)
    assert capsys.readouterr().out == "tracing traced f64[3] x\n"


@pytest.mark.parametrize("transform", [lambda f: f, pb.jit])
def test_mistakes(transform: Any) -> None:
    with pytest.raises(TypeError, match="takes one format string"):
        transform(lambda x: pb.print("x", x, file=3))(X)
    with pytest.raises(TypeError, match="have names"):
        transform(lambda x: pb.print("{}", y=x))(X)
    with pytest.raises(KeyError):
        transform(lambda x: pb.print("{z}", y=x))(X)
    with pytest.raises(ValueError, match="format code"):
        transform(lambda x: pb.print("{y:d}", y=x))(X)
