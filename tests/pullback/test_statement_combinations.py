"""Python's own loops, checks, joins and growing lists in each way to call a compiled function: plain Python's value, or an error
with the reason.
"""

from __future__ import annotations

import concurrent.futures
import inspect
import json
import linecache
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.cuda.compile import compile as cuda_compile
from tests import cuda_host
from tests.support.cuda.targets import HOST
from tests.support.exports import needs_linker
from tests.support.paths import ROOT
from tests.support.statement_programs import PROGRAMS

Function = Callable[[Any, Any], Any]
X = np.array([0.5, 1.25, -0.75, 2.0])
N = np.array([5])


def loaded(function: Function, path: Path) -> Function:
    library = pb.export(function, "f64[4]", "i64[1]", path=path / "model").library
    assert library is not None
    result: Function = pb.load(library, trust=True)
    return result


def called_by_threads(function: Function) -> Function:
    compiled = pb.jit(function)

    def call(x: Any, n: Any) -> Any:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: compiled(x, n), range(8)))
        for result in results:
            np.testing.assert_array_equal(result, results[0])
        return results[0]

    return call


def in_a_cell(function: Function) -> Function:
    """Return the function as a cell of a notebook defines it."""
    text = inspect.getsource(function)
    file = f"<ipython-input-{function.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"np": np, "Any": Any}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return pb.jit(namespace[function.__name__])


def of_a_batch(function: Function, *, of_both: bool) -> Function:
    batched = pb.vmap(function, in_axes=(0, 0) if of_both else (0, None))

    def call(x: Any, n: Any) -> Any:
        xs, ns = np.stack([x + 1, x, -x]), np.array([n - 1, n, n + 1])
        return batched(xs, ns if of_both else n)[1]

    return call


def donated(function: Function) -> Function:
    compiled = pb.jit(function, donate="x")
    return lambda x, n: compiled(x.copy(), n)


def into(function: Function) -> Function:
    compiled = pb.jit(function)

    def call(x: Any, n: Any) -> Any:
        result = np.empty(4)
        assert compiled.into(result, x, n) is result
        return result

    return call


WAYS: dict[str, Callable[[Function, Path], Function]] = {
    "jit": lambda f, _: pb.jit(f), "no guards": lambda f, _: pb.jit(f, guards=False),
    "export": loaded, "pickle": lambda f, _: pickle.loads(pickle.dumps(pb.jit(f))),
    "dynamic": lambda f, _: pb.jit(f, dynamic=True), "debug": lambda f, _: pb.jit(f, debug=True),
    "check": lambda f, _: pb.jit(f, check=True), "verify": lambda f, _: pb.jit(f, verify=3), "donate": lambda f, _: donated(f),
    "into": lambda f, _: into(f), "threads": lambda f, _: called_by_threads(f), "notebook": lambda f, _: in_a_cell(f),
    "vmap": lambda f, _: of_a_batch(f, of_both=False), "vmap of both": lambda f, _: of_a_batch(f, of_both=True),
    "checkpoint": lambda f, _: pb.jit(pb.checkpoint(f)),
}  # fmt: skip
NEEDS = {"export": needs_linker}
REFUSED: dict[tuple[str, str], tuple[type[Exception], str]] = {
    ("appended_list", "vmap of both"): (pb.TraceError, "the number of elements depends on values of the mapped axis"),
    ("appended_array", "vmap of both"): (pb.TraceError, "the number of elements depends on values of the mapped axis"),
    ("appended_columns", "vmap of both"): (pb.TraceError, "the number of elements depends on values of the mapped axis"),
}
"""The errors of programs in ways that do not take them: their types, and parts of their texts."""


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings(action="error", category=pb.RetraceWarning):
        yield


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", [pytest.param(w, marks=NEEDS.get(w, ())) for w in WAYS])
def test_values_and_errors_are_plain_pythons(name: str, way: str, tmp_path: Path) -> None:
    function = PROGRAMS[name]

    def run() -> None:
        compiled = WAYS[way](function, tmp_path)
        for n in (N, N - 2):
            np.testing.assert_allclose(np.asarray(compiled(X, n)), function(X, n), rtol=1e-12)
        if name == "checks":
            with pytest.raises(ValueError, match="x is large"):
                np.asarray(compiled(X + 10, N))

    if (name, way) in REFUSED:
        kind, text = REFUSED[name, way]
        with pytest.raises(kind, match=text):
            run()
    else:
        run()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", ["grad", "of checkpoint", "of vmap", "jvp", "second"])
def test_derivatives_are_those_of_differences(name: str, way: str) -> None:
    function, n, weights = PROGRAMS[name], N, np.array([1.0, -0.5, 0.25, 2.0])
    of = pb.checkpoint(function) if way == "of checkpoint" else function

    def loss(x: Any) -> Any:
        if way == "of vmap":
            return np.sum(pb.vmap(of, in_axes=(0, None))(np.stack([x, 2 * x]), n) * weights)
        return np.sum(of(x, n) * weights)

    def plain(x: Any) -> Any:
        rows = [x, 2 * x] if way == "of vmap" else [x]
        return sum(np.sum(function(row, n) * weights) for row in rows)

    expected = [(plain(X + d) - plain(X - d)) / 2e-6 for d in 1e-6 * np.eye(4)]
    if way == "jvp":
        result = [pb.jvp(loss, (X,), (d,))[1] for d in np.eye(4)]
    else:
        result = pb.grad(loss)(X)
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-8)
    if way == "second":
        slopes = [(pb.grad(loss)(X + d) - pb.grad(loss)(X - d)) / 2e-6 for d in 1e-6 * np.eye(4)]
        np.testing.assert_allclose(pb.hessian(loss)(X), slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("machine", [HOST])
def test_values_and_errors_of_a_device_are_plain_pythons(name: str, machine: Any) -> None:
    cuda_host.activate()
    before = cuda_compile.use(cuda_host.Compiler())
    try:
        compiled = pb.jit(PROGRAMS[name], device="cuda")
        if name.startswith("appended_"):
            with pytest.raises(pb.TraceError, match="programs on a device have arrays of known lengths"):
                compiled(X, N)
            return
        np.testing.assert_allclose(np.asarray(compiled(X, N)), PROGRAMS[name](X, N), rtol=1e-12)
        if name == "checks":
            with pytest.raises(ValueError, match="x is large"):
                np.asarray(compiled(X + 10, N))
    finally:
        cuda_compile.use(before)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nan_is_located(name: str) -> None:
    report = pb.find_nan(PROGRAMS[name])
    assert not report(X, N)
    first = report(np.array([np.nan, 1.0, 1.0, 1.0]), N).first
    assert first is not None and first.name == "argument x"


SECOND = """
import json, numpy as np, pullback as pb
from pullback.runtime.process import counters
from tests.support.statement_programs import PROGRAMS
results = {}
for name, f in PROGRAMS.items():
    results[name] = [pb.jit(f)(np.array([0.5, 1.25, -0.75, 2.0]), np.array([5])).tolist()]
    results[name].append(pb.grad(lambda x: np.sum(f(x, np.array([5]))))(np.array([0.5, 1.25, -0.75, 2.0])).tolist())
print(json.dumps([results, counters.snapshot().compiles]))
"""


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path)}
    outputs = []
    for _ in range(2):
        command = [sys.executable, "-c", SECOND]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        outputs.append(json.loads(done.stdout))
    (first, compiles), (second, others) = outputs
    assert compiles > 0 and others == 0
    assert first == second
    for name, (value, _) in first.items():
        np.testing.assert_allclose(value, PROGRAMS[name](X, N), rtol=1e-12)
