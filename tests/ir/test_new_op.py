"""Adding one row adds the op everywhere: traced under its SciPy name, in the text, differentiated, compiled, and as CUDA C."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.ir import OPS
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module, print_module
from pullback.tracer import TraceError

MODULE = '''
"""The sine of degrees, an op that no other file knows."""

import math

from pullback.ir.ops.elementwise.elementwise import Elementwise, const_like, each

RADIAN = lambda b, x: const_like(b, math.pi / 180, x)
sindg = Elementwise(
    name="sindg",
    reference="scipy.special.sindg",
    pullback=each(lambda b, ct, out, x: b.mul(ct, b.mul(RADIAN(b, x), b.cos(b.mul(RADIAN(b, x), x))))),
    llvm="ufunc:scipy.special.sindg",
    cuda="sinpi({0} / 180)",
)
'''


@pytest.fixture
def sindg(tmp_path: Path) -> Iterator[Any]:
    """A temporary module with one row; gone after the test."""
    path = tmp_path / "sindg_op.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("sindg_op", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module.sindg
    finally:
        OPS.pop("sindg", None)


def loss(x: Any) -> Any:
    return np.sum(scipy.special.sindg(x) * x**2)


X = np.array([0.3, -1.2, 2.5, 0.01])


def test_without_the_row_the_function_is_refused() -> None:
    with pytest.raises(TraceError, match="sindg"):
        pb.jit(loss)(X)


def test_one_row_is_a_whole_op(sindg: Any) -> None:
    np.testing.assert_allclose(pb.jit(loss)(X), loss(X), rtol=1e-13)
    gradient, step = pb.grad(loss)(X), 1e-6
    wanted = [(loss(X + step * e) - loss(X - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-9)
    second = pb.grad(lambda x: np.sum(pb.grad(loss)(x)))(X)
    wanted = [np.sum(pb.grad(loss)(X + step * e) - pb.grad(loss)(X - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(second, wanted, rtol=1e-6, atol=1e-9)
    texts = pb.grad(loss).stages(X)
    for stage in ("trace", "grad", "simplify", "fuse", "lower", "schedule"):
        assert "= sindg %" in texts[stage]
        assert print_module(parse_module(texts[stage])) == texts[stage]
    (result,) = interpret(parse_module(texts["simplify"]).functions[0], X)
    np.testing.assert_allclose(result, gradient, rtol=1e-12)
    assert "sinpi(" in pb.jit(loss, device="cuda").stages(X)["cuda"]
