"""The reports on a call: their numbers are those of the program that runs, their lines the user's, and they change nothing."""

import html
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.inspection import Cost, Explanation, Memory, Report, Residuals, Stages
from pullback.ir.core.structure import Loc
from pullback.ir.text import parse_module
from pullback.programs.report import WIDTH, places, table
from pullback.runtime.compile import engine
from tests.support.api import traces

RNG = np.random.default_rng(0)
SCALE = 1.5
TABLE = np.linspace(0.0, 1.0, 5)
MODE = "full"


def vector(n: int = 1000, dtype: Any = np.float64) -> Any:
    return RNG.uniform(0.2, 0.9, n).astype(dtype)


def matrix(n: int, m: int, dtype: Any = np.float64) -> Any:
    return RNG.uniform(0.2, 0.9, (n, m)).astype(dtype)


def loss(w: Any, x: Any, y: Any) -> Any:
    z = np.tanh(x @ w[0]) @ w[1]
    e = np.exp(z - np.max(z, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return -np.mean(np.sum(y * np.log(p), axis=1))


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the line of a function that holds a text."""
    code = function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    return next(k for k, line in enumerate(lines, 1) if k > code.co_firstlineno and text in line)


LOSS = ([matrix(64, 32), matrix(32, 10)], matrix(100, 64), matrix(100, 10))


# every report on every kind of transformed function


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @pb.jit
    def predict(self, x: Any) -> Any:
        return np.exp(x * self.scale)

    @pb.value_and_grad
    def loss(self, x: Any) -> Any:
        return np.sum(np.exp(x) * self.scale)


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "jit": (pb.jit(loss), LOSS, {}),
    "grad": (pb.grad(loss), LOSS, {}),
    "twice": (pb.grad(pb.grad(lambda x: x**3 * np.sin(x))), (0.5,), {}),
    "method": (Model(2.0).predict, (vector(),), {}),
    "gradient of a method": (Model(2.0).loss, (vector(),), {}),
    "keywords": (
        pb.jit(lambda x, *, n, how: x[:n] if how == "head" else x, static_argnames=["n"]),
        (vector(),),
        {"n": 3, "how": "head"},
    ),
    "nothing to compute": (pb.jit(lambda x: x), (vector(),), {}),
    "nothing at all": (pb.jit(lambda: 3.0), (), {}),
    "empty": (pb.value_and_grad(lambda x: np.sum(x * x)), (np.zeros(0),), {}),
    "scalars": (pb.value_and_grad(lambda a, b: a * b), (2.0, np.float32(3)), {}),
    "strided": (pb.jit(lambda x: (x @ x.T, x[::2])), (matrix(6, 8)[:, ::2],), {}),
    "writes": (pb.jit(lambda x: x.__setitem__(0, 2.0)), (np.ones(3),), {}),
    "integers": (pb.jit(lambda x: np.cumsum(x)[x % 3]), (np.arange(9),), {}),
    "gpu": (pb.jit(loss, device="cuda"), LOSS, {}),
}
REPORTS: dict[str, type[Report]] = {
    "stages": Stages, "explain": Explanation, "residuals": Residuals, "memory": Memory, "cost": Cost
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("report", REPORTS)
def test_every_report_is_text_and_changes_nothing(name: str, report: str) -> None:
    function, args, kwargs = CALLS[name]
    before = pb.cache_info(), repr(args)
    result = getattr(function, report)(*args, **kwargs)
    assert (pb.cache_info(), repr(args)) == before
    assert isinstance(result, REPORTS[report])
    text = str(result)
    assert text and not text.endswith("\n")
    if report != "stages":
        assert max(map(len, text.splitlines())) <= WIDTH
        assert text == str(getattr(function, report)(*args, **kwargs))
    assert str(pickle.loads(pickle.dumps(result))) == text
    assert result.headline in repr(result).replace("\n", " ")
    shown = html.unescape(re.sub(r"<[^>]+>", "\n", result._repr_html_()))
    assert all(line.strip() in shown for line in text.splitlines() if not line.startswith("# stage"))


def test_tables_and_places() -> None:
    rows = [("a", "1", "word " * 40), ("bb", "1,000", "one\u00a0thing")]
    lines = table(("name", "number", "words"), rows, right=("number",))
    assert max(map(len, lines)) <= WIDTH and lines[1].startswith("  a          1  word word")
    assert lines[-1] == "  bb     1,000  one thing"
    locs = [Loc("/a/m.py", k) for k in (3, 4, 5, 9)] + [Loc("/a/n.py", 2), Loc()]
    assert places(locs) == "m.py:3-5, 9, n.py:2"


# stages


def test_stages_are_a_mapping() -> None:
    stages = pb.grad(loss).stages(*LOSS)
    assert list(stages) == ["trace", "grad", "simplify", "fuse", "lower", "schedule", "program", "llvm", "asm"]
    assert "gradient" in stages["trace"] and "lower" in stages and stages == dict(stages)
    assert parse_module(stages["lower"]).functions[0].kind == "program"
    assert str(stages).startswith("# stage: trace\npullback-ir 2\n")
    assert stages.inputs["w_0"].shape == (64, 32)
    with pytest.raises(KeyError, match="there is no stage 'lowr'"):
        stages["lowr"]
    with pytest.raises(TypeError):
        stages["trace"] = ""  # type: ignore[index]


# memory: the numbers of the runtime

ARENAS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "network": (pb.value_and_grad(loss), LOSS),
    "products": (pb.jit(lambda x: (x @ x.T) @ (x @ x.T) @ x), (matrix(30, 7),)),
    "strided": (pb.jit(lambda x: (x @ x.T, x.T @ x)), (matrix(6, 8)[:, ::2],)),
    "scan": (pb.jit(lambda x: np.cumsum(np.cumsum(np.sort(x) if False else x)) @ np.ones((9, 2))), (vector(9),)),
    "scatter": (pb.grad(lambda x: np.sum(x[np.array([0, 0, 2])] ** 2)), (vector(5),)),
    "float32": (pb.value_and_grad(lambda a, b: np.sum(np.tanh(a @ b) @ b.T)), (matrix(9, 5, "f4"), matrix(5, 8, "f4"))),
    "one result twice": (pb.jit(lambda x: (y := x * 2, y, x, x.reshape(2, 2))), (vector(4),)),
    "nothing": (pb.jit(lambda x: x), (vector(4),)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARENAS)
def test_memory_is_what_the_runtime_allocates(name: str) -> None:
    function, args = ARENAS[name]
    report = function.memory(*args)  # type: ignore[attr-defined]
    results = pb.tree.leaves(function(*args))
    entries = [e for variants in function._entries.by_key.values() for e in variants]  # type: ignore[attr-defined]
    template = entries[0].program.template
    arenas = [] if template is None else [i.arena_bytes for i in template.executable.instances.values()]
    assert [report.arena_bytes] == (arenas or [0])
    arguments = {id(a) for a in pb.tree.leaves(args)}
    assert sorted(b.bytes for b in report.results) == sorted(r.nbytes for r in results if id(r) not in arguments)
    assert sum(b.bytes for b in report.inputs) == sum(np.asarray(a).nbytes for a in pb.tree.leaves(args))
    assert report.allocated_bytes == report.arena_bytes + sum(b.bytes for b in report.results)
    steps = 0 if template is None else len(template.executable.plan.steps)
    assert function.cost(*args).launches == steps  # type: ignore[attr-defined]
    for one in report.temporaries:
        assert one.offset is not None and one.first is not None and one.last is not None
        room = {b.name: b.bytes for b in report.results}[one.within] if one.within else report.arena_bytes
        assert one.offset + one.bytes <= room and one.first <= one.last < steps
        for other in report.temporaries:
            if other is not one and other.within == one.within and other.first <= one.last and one.first <= other.last:
                assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset


def test_memory_in_the_users_lines() -> None:
    report = pb.value_and_grad(loss).memory(*LOSS)
    assert {b.name for b in report.inputs} == {"w_0", "w_1", "x", "y"}
    first = line_of(loss, "tanh")
    assert {b.loc.line for b in report.temporaries if b.op == "contract"} == {first}
    assert [b.type for b in report.results] == ["f64[]", "f64[64,32]", "f64[32,10]"]
    assert report.unshared_bytes > report.arena_bytes
    assert report.peak_bytes == report.allocated_bytes + sum(b.bytes for b in report.inputs)
    assert f"test_inspection.py:{first}" in str(report)


def test_constants_and_captured_arrays() -> None:
    def f(x: Any) -> Any:
        return x * TABLE @ np.asarray([1.0, 2.0, 3.0, 4.0, 5.0])

    report = pb.jit(f).memory(vector(5))
    assert {b.name: b.bytes for b in (*report.inputs, *report.constants)} == {"x": 40, "TABLE": 40, "const": 40}


# cost: counted by hand

COSTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "dot": (lambda x, y: np.sum(x * y), (vector(7), vector(7)), {"add": 7, "multiply": 7, "bytes_read": 112, "bytes_written": 8}),
    "product": (lambda x, y: x @ y, (matrix(4, 5), matrix(5, 3)), {"flops": 120, "bytes_read": 280, "calls": {"gemm": 1}}),
    "batch": (lambda x: x @ x, (np.ones((6, 20, 20)),), {"flops": 96000, "bytes_read": 38400, "calls": {}}),
    "small batch": (lambda x: x @ x, (np.ones((6, 2, 2)),), {"flops": 96, "bytes_read": 384, "calls": {}}),
    "functions": (lambda x: np.exp(x) + np.sin(x), (vector(9),), {"function": 18, "add": 9, "bytes_read": 72}),
    "float32": (lambda x: x / np.sqrt(x), (vector(8, "f4"),), {"divide": 16, "bytes_read": 32, "bytes_written": 32}),
    "pairs": (lambda x, y: np.sum(np.abs(x[:, None] - y), axis=1), (vector(20), vector(30)),
              {"add": 1200, "compare": 600, "bytes_read": 400, "bytes_written": 160}),
    "slice": (lambda x: x[10:20] * 2.0, (vector(100),), {"multiply": 10, "bytes_read": 80, "bytes_written": 80}),
    "integers": (lambda x: x + 1, (np.arange(6),), {"flops": 0, "bytes_read": 48, "bytes_written": 48}),
    "empty": (lambda x: np.sum(x * 2.0), (np.zeros(0),), {"flops": 0, "bytes_read": 0, "bytes_written": 8}),
    "largest": (lambda x: np.argmax(x), (vector(6),), {"compare": 6, "bytes_read": 48}),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_cost(name: str) -> None:
    function, args, expected = COSTS[name]
    total = pb.jit(function).cost(*args).total
    assert total.is_exact
    assert {k: total.counts[k] if k in total.counts else getattr(total, k) for k in expected} == expected


def test_cost_in_the_users_lines() -> None:
    report = pb.value_and_grad(loss).cost(*LOSS)
    lines = {loc.line for kernel in report.kernels for loc in kernel.lines}
    first = line_of(loss, "tanh")
    assert lines == {first, first + 1, first + 2, first + 3}
    assert [k.calls for k in report.kernels].count({"gemm": 1}) == 5
    # tanh and its tail, from which the gradient has the derivative, and tanh for the product that reads it
    assert report.total.functions == 2 * 100 * 32 + 2 * 100 * 10
    assert report.total.flops == sum(k.flops for k in report.kernels)
    assert report.kernels[0].intensity == report.kernels[0].flops / report.kernels[0].bytes


# residuals


def residual_ops(report: Residuals) -> dict[str, str]:
    return {r.op: r.kept for r in report.residuals}


def test_residuals() -> None:
    report = pb.value_and_grad(loss).residuals(*LOSS)
    kept = residual_ops(report)
    assert kept["select"] == "memory" and kept["exp"] == "kernel" and "tanh" not in kept
    tail = next(r for r in report.residuals if r.op == "select")
    first = line_of(loss, "tanh")
    assert (tail.type, tail.bytes, tail.loc.line) == ("f64[100,32]", 25_600, first)
    assert {loc.note for loc in tail.readers} == {"pullback(tanh)"}
    assert {i.name for i in report.inputs} == {"w_1", "x", "y"}
    assert report.stored_bytes < report.total_bytes == sum(r.bytes for r in report.residuals)
    assert f"%{tail.name}: f64[100,32] = select" in pb.value_and_grad(loss).stages(*LOSS)["simplify"]


def test_residuals_of_higher_orders_are_those_of_the_outermost() -> None:
    def cube(x: Any) -> Any:
        return np.sum(np.sin(x) * np.exp(x))

    once = pb.grad(cube).residuals(vector(9))
    twice = pb.grad(lambda x: np.sum(pb.grad(cube)(x) ** 2)).residuals(vector(9))
    assert set(residual_ops(once)) >= {"exp"}
    assert {r.type for r in twice.residuals} == {"f64[9]"} and len(twice.residuals) > len(once.residuals)
    assert any(r.loc.note.startswith("pullback") for r in twice.residuals)


def test_residuals_of_a_recursion_are_its_elements() -> None:
    def run(a: Any) -> Any:
        h = np.zeros(33)
        h[0] = 0.5
        for t in range(1, 6):
            h[t] = np.sin(h[t - 1]) * a
        return np.sum(h)

    function = pb.grad(run)
    report = function.residuals(0.7)
    rows = [line for line in str(report).splitlines() if "sin test_inspection" in line or "slice test_inspection" in line]
    assert len(rows) < 5 < len(report.residuals) and any(re.match(r"  %\w+ \+ \d ", row) for row in rows)
    assert any(re.match(r"  k\d+ x\d", line) for line in str(function.cost(0.7)).splitlines())
    assert report.residuals and {r.bytes for r in report.residuals} == {8}
    assert report.stored_bytes <= function.memory(0.7).peak_bytes


def test_no_residuals() -> None:
    report = pb.jit(loss).residuals(*LOSS)
    assert not report.has_gradient and str(report) == "loss: no gradient is taken, so nothing is kept for one"
    constant = pb.grad(lambda x: np.sum(x * 2.0)).residuals(vector(4))
    assert constant.has_gradient and not constant.residuals and not constant.inputs


# explain


def module_of(text: str, **names: Any) -> ModuleType:
    """A module of the user's."""
    built = ModuleType("explained")
    exec(compile(text, "explained.py", "exec"), built.__dict__)
    built.__dict__.update(names)
    sys.modules["explained"] = built
    return built


def test_explain_through_the_life_of_a_function() -> None:
    user = module_of(
        "def f(x, how):\n  y = x * lam if how == 'times' else x + lam\n  return y * 2 if MODE == 'full' else y\n",
        lam=0.7, MODE="full",
    )  # fmt: skip
    f = pb.jit(user.f)
    x = vector(3)
    first = f.explain(x, "times")
    assert (first.status, first.signatures, first.template) == ("first call", 0, "new")
    assert sum(first.kernels.values()) == 1 and not first.seconds and not first.is_compiled
    assert [(a.name, a.text, a.is_static) for a in first.arguments] == [("x", "f64[3]", False), ("how", "'times'", True)]
    reads = {r.name: (r.text, r.is_input) for r in first.reads}
    assert reads["lam"] == ("float", True) and reads["MODE"] == ("'full'", False)
    f(x, "times")
    second = f.explain(x, "times")
    assert second.is_compiled and second.template == "built" and second.kernels["compiled"] + second.kernels["memory"] >= 1
    assert {"trace", "compile"} <= set(second.seconds)
    longer = f.explain(vector(4), "times")
    assert longer.status == "new signature" and longer.template == "known"
    assert [str(c) for c in longer.changes] == ["x is f64[4], was f64[3]"]
    f(vector(4), "times")
    assert f.explain(vector(4), "times").template == "instantiated"
    other = f.explain(x, "plus")
    assert [str(c) for c in other.changes] == ["how is 'plus', was 'times'"]
    user.MODE = "half"
    changed = f.explain(x, "times")
    assert changed.status == "guard failed" and [str(c) for c in changed.changes] == ["MODE is 'half', was 'full'"]
    user.MODE, user.lam = "full", np.ones(3)
    changed = f.explain(x, "times")
    assert [str(c) for c in changed.changes] == ["lam is f64[3], was float"]
    del user.lam
    with pytest.raises(NameError):
        f.explain(x, "times")


def test_explain_of_each_kind_of_change() -> None:
    user = module_of("def f(x, mode='sum'):\n  return x * k if mode == 'sum' else -x\n", k=2.5)

    def closed(how: str) -> tuple[Any, Any]:
        def inner(x: Any) -> Any:
            return x if how == "as it is" else -x

        def change(new: str) -> None:
            nonlocal how
            how = new

        return pb.jit(inner), change

    f, (g, change) = pb.jit(user.f), closed("as it is")
    x = vector(4)
    f(x, "sum")
    g(x)
    cases = [
        ((x.astype(np.float32), "sum"), ["x is f32[4], was f64[4]"]),
        ((x.reshape(2, 2), "sum"), ["x is f64[2,2], was f64[4]"]),
        ((x, "none"), ["mode is 'none', was 'sum'"]),
        ((np.repeat(x, 2)[::2], "sum"), ["x is f64[4] strided, was f64[4]"]),
    ]
    for args, changes in cases:
        report = f.explain(*args)
        assert report.status == "new signature" and [str(c) for c in report.changes] == changes and not report.path
        assert "is traced, since no program is for arguments of these types" in str(report)
    user.k = np.ones(4)
    change("negative")
    for function, args, said in ((f, (x, "sum"), "k is f64[4], was float"), (g, (x,), "how is 'negative', was 'as it is'")):
        report = function.explain(*args)
        assert report.status == "guard failed" and [str(c) for c in report.changes] == [said]
        assert "is traced again, since what was read from outside has changed" in str(report)


def test_explain_of_arguments_that_differ_in_more_than_a_shape() -> None:
    f = pb.jit(lambda x, c: x)
    f([vector(3), 2.0], SimpleNamespace)
    cases = [
        (([vector(3), 2], SimpleNamespace), ["x[1] is int, was float"]),
        (([vector(3)], SimpleNamespace), ["x[1] is not given, was float"]),
        (((vector(3), 2.0), SimpleNamespace), ["the kind or order of a container has changed; it is another one"]),
        (([matrix(3, 2)[:, 0], 2.0], SimpleNamespace), ["x[0] is f64[3] strided, was f64[3]"]),
        (([vector(3), np.float64(2)], SimpleNamespace), ["x[1] is f64[] scalar, was float"]),
        (([vector(3), 2.0], dict), ["c is dict, was SimpleNamespace"]),
    ]
    for args, changes in cases:
        assert [str(c) for c in f.explain(*args).changes] == changes


def test_explain_of_numbers_that_a_trace_asks_for() -> None:
    def repeat(x: Any, n: Any, flag: Any) -> Any:
        for _ in range(n):
            x = x * 2.0
        return x if flag else -x

    f = pb.jit(repeat)
    x = vector(3)
    first = f.explain(x, 3, True)
    asked = {n.name: (n.value, n.loc.line) for n in first.static_numbers}
    assert asked == {"n": (3, line_of(repeat, "range")), "flag": (True, line_of(repeat, "if flag"))}
    f(x, 3, True)
    assert f.explain(x, 3, True).is_compiled
    assert [str(c) for c in f.explain(x, 4, True).changes] == ["n is 4, was 3"]


def test_a_print_is_no_launch() -> None:
    def shown(x: Any) -> Any:
        y = np.exp(x.T)
        pb.print("y", y, x)
        return np.sum(y)

    for function in (pb.jit(shown), pb.grad(shown)):
        args = (matrix(4, 5)[:, ::2],)
        assert function.cost(*args).total.functions >= 12 and function.memory(*args).results
        assert function.explain(*args).status == "first call" and str(function.residuals(*args))


def test_explain_counts_kernels_on_disk() -> None:
    def f(x: Any) -> Any:
        return np.expm1(x) * 17.25 - np.tanh(x)

    function = pb.jit(f)
    assert function.explain(vector()).kernels == {"compiled": 1}
    text = function.stages(vector())["llvm"]
    other = engine.Engine(engine.default_engine()._cache)
    other.load(text, symbols=re.findall(r"define i64 @(\w+)", text))
    assert function.explain(vector()).kernels == {"memory": 1}
    with engine.default_engine()._cache.lock:
        engine.default_engine()._cache._memory.clear()
    assert function.explain(vector()).kernels == {"disk": 1}


def test_explain_traces_only_what_would_be_traced() -> None:
    f = pb.jit(lambda x: np.sin(x) * 3.5)
    f(vector(3))
    count = traces()
    assert f.explain(vector(3)).is_compiled and traces() == count
