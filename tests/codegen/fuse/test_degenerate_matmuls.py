"""Matrix products of one row, one column or one term, which are none: their extents are numbers in templates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.passes.size_classes import templated
from tests.codegen.cpu.matmul.test_blocked import operands
from tests.codegen.fuse.test_matmul_fusion import made, ops

VECTORS: dict[str, Any] = {
    "row": lambda x, w: x[:1] @ w,
    "column": lambda x, w: x @ w[:, :1],
    "row and column": lambda x, w: x[:1] @ w[:, :1],
    "outer": lambda x, w: x[:, :1] @ w[:1],
    "row, turned": lambda x, w: x[:1] @ w.T.copy().T,
    "batch of one": lambda x, w: x[None] @ w[None],
    "gradient": pb.grad(lambda x, w: np.sum(np.tanh(x[:1] @ w) ** 2), argnums=(0, 1)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int32])
@pytest.mark.parametrize("name", VECTORS)
def test_one_row_or_column_is_a_vector(name: str, dtype: Any) -> None:
    if name == "gradient" and dtype not in (np.float32, np.float64):
        return
    x, w, *_ = operands(5, 30, 20, "f64", (False, False))
    x, w = (4 * x).astype(dtype), (4 * w).astype(dtype)
    arguments = (x, w)
    if name != "batch of one":
        assert not {"gemm", "product"} & set(ops(VECTORS[name], *arguments))
    result, expected = pb.jit(VECTORS[name])(*arguments), VECTORS[name](*arguments)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (result, expected)), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 if dtype == np.float32 else 1e-11)


def test_an_extent_of_one_is_a_number_in_templates() -> None:
    x, w, *_ = operands(5, 30, 20, "f64", (False, False))

    def first(rows: int) -> Any:
        return templated(made(lambda x, w: x @ w, x[:rows], w)[0]).function.parameters[0].type.shape[0]

    assert first(1) == 1
    assert isinstance(first(2), str)
    assert isinstance(first(5), str)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_come_and_go(dynamic: bool) -> None:
    f = pb.jit(lambda x, w: np.tanh(x @ w), dynamic=dynamic)
    for m, k, n in ((3, 4, 5), (1, 4, 5), (2, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (1, 4, 1), (0, 4, 1), (3, 4, 5)):
        x, w, *_ = operands(m, k, n, "f64", (False, False))
        np.testing.assert_allclose(f(x, w), np.tanh(x @ w), rtol=0, atol=1e-13)
