"""Branches on values by default: compiled, else followed by guards with a warning, else refused; and the options."""

import inspect
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs import branch_paths
from pullback.tracer import branch_guards

X = np.array([0.5, -1.5, 2.5])
SWAPPING = [3.0, 0.5, -2.0]


@pytest.fixture(autouse=True)
def _no_warning_was_issued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_paths, "_warned", set())


def signed(x: Any) -> Any:
    if x > 0:
        return x * x
    return -x


def pair_or_not(x: Any) -> Any:
    entries = SimpleNamespace()
    if x > 0:
        entries.a = (x, 2 * x)
    return getattr(entries, "a", x)


def unrolled(function: Callable[..., Any]) -> Any:
    return pb.jit(function, loops="unroll")


def recorded(call: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """The result of a call, and the warnings about retraces."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [w for w in caught if issubclass(w.category, pb.RetraceWarning)]


def test_a_branch_is_compiled_and_one_program_serves_both_paths() -> None:
    compiled = pb.jit(signed)
    results, caught = recorded(lambda: [compiled(x) for x in SWAPPING])
    assert results == [signed(x) for x in SWAPPING] and not caught
    assert len(compiled.examine((1.0,), {}).trace.branches) == 0


def test_what_cannot_be_joined_is_followed_and_named_once() -> None:
    compiled = pb.jit(pair_or_not)
    results, caught = recorded(lambda: [compiled(x) for x in (*SWAPPING, *SWAPPING)])
    assert results == [pair_or_not(x) for x in (*SWAPPING, *SWAPPING)]
    (warning,) = caught
    text = str(warning.message)
    line = inspect.getsourcelines(pair_or_not)[1] + 2
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert "pair_or_not is traced anew for each outcome of x > 0" in text
    assert "a branch or loop on traced values changes entries" in text and f"{Path(__file__).name}:{line}" in text
    assert "guards=False" in text and "guards=True" in text
    assert not recorded(lambda: pb.jit(pair_or_not, guards=True)(1.0))[1]


def test_options_refuse() -> None:
    for function, options in (
        (pair_or_not, {"guards": False}),
        (signed, {"loops": "unroll"}),
        (pair_or_not, {"loops": "unroll"}),
    ):
        with pytest.raises(pb.TraceError, match=r"a Python branch \(if\) on a traced value"):
            pb.jit(function, **options)(1.0)
    assert pb.jit(signed, guards=False)(-2.0) == 2.0


def test_a_function_that_unrolls_refuses_inside_one_that_does_not() -> None:
    inner = unrolled(signed)

    def outer(x: Any) -> Any:
        return inner(x) if x > 10 else x

    with pytest.raises(pb.TraceError, match="a Python branch") as caught:
        recorded(lambda: pb.jit(outer)(20.0))
    line = inspect.getsourcelines(signed)[1] + 1
    assert f"not rolled: a Python branch (if) on a traced value, at tests/tracer/statements/test_chain.py:{line}" in str(
        caught.value
    )


def test_a_function_that_follows_inside_one_that_does_not() -> None:
    inner = pb.jit(pair_or_not, guards=True)

    def outer(x: Any) -> Any:
        y = inner(x)
        return y[0] + y[1] if isinstance(y, tuple) else y

    compiled = pb.jit(outer)
    results, caught = recorded(lambda: [compiled(x) for x in SWAPPING])
    assert results == [outer(x) for x in SWAPPING] and not caught


@pytest.mark.parametrize("options", [{"loops": "unroll"}, {"guards": True}])
def test_a_default_function_inside_another(options: dict[str, Any]) -> None:
    inner = pb.jit(signed)
    compiled = pb.jit(lambda x: inner(x) + 1.0, **options)
    results, caught = recorded(lambda: [compiled(x) for x in SWAPPING])
    assert results == [signed(x) + 1.0 for x in SWAPPING] and not caught


def test_transforms_of_plain_functions_compile_branches() -> None:
    assert [pb.grad(signed)(x) for x in SWAPPING] == [6.0, 1.0, -1.0]
    assert [pb.grad(pb.grad(signed))(x) for x in SWAPPING] == [2.0, 2.0, 0.0]
    np.testing.assert_array_equal(pb.vmap(signed)(X), [signed(x) for x in X])
    np.testing.assert_array_equal(pb.vmap(pb.grad(signed))(X), [1.0, -1.0, 5.0])
    value, slope = pb.value_and_grad(signed)(3.0)
    assert (value, slope) == (9.0, 6.0)


def test_a_function_followed_on_too_many_paths_is_refused() -> None:
    def listed(n: Any) -> Any:
        return [0.0] * int(n)

    compiled = pb.jit(listed)

    def calls() -> None:
        for n in range(branch_paths.MOST_PATHS):
            assert compiled(float(n)) == listed(n)

    recorded(calls)
    with pytest.raises(pb.TraceError, match=f"listed has more than {branch_paths.MOST_PATHS} outcomes of"):
        recorded(lambda: compiled(1000.0))


def test_a_followed_loop_that_unrolls_into_too_many_operations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_guards, "MOST_FOLLOWED", 500)

    def grown(x: Any) -> Any:
        out = []
        while x > 1e-9:
            x = x * 0.97 + 0.0 * np.sin(x)
            out.append((x, len(out)) if len(out) % 2 else [x])
        return x

    with pytest.raises(pb.TraceError):
        recorded(lambda: pb.jit(grown)(1.0))


def test_a_float_is_not_followed() -> None:
    def stretched(x: Any) -> Any:
        return [1.0 * k for k in range(3)][:2], f"{float(x[0]):.2f}"

    assert pb.jit(stretched)(X) == stretched(X)
    assert pb.jit(lambda x: sorted({float(x[0]): 1}))(X) == [float(X[0])]
    with pytest.raises(pb.TraceError):
        pb.jit(lambda x: x * next(map(float, x)))(X)


def test_a_followed_function_is_not_exported(tmp_path: Path) -> None:
    compiled = pb.jit(pair_or_not)
    recorded(lambda: compiled(1.0))
    with pytest.raises(Exception, match="pair_or_not follows branches on values") as caught:
        recorded(lambda: pb.export(compiled, "f64[]", path=tmp_path / "f"))
    assert type(caught.value).__name__ == "ExportError"


@pytest.mark.parametrize("function", [signed, pair_or_not])
def test_first_calls_of_two_threads(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    barrier = threading.Barrier(2, timeout=30)
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        barrier.wait()
        results[k] = [compiled(x if k else -x) for x in SWAPPING]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]

    def both() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    recorded(both)
    assert results == {k: [function(x if k else -x) for x in SWAPPING] for k in range(2)}
