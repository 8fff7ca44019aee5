"""Matrix products in CUDA C, against the interpreter: ragged tiles, either operand transposed, batches, and nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import product_forms
import pytest
from cuda_program import CudaProgram, Make, expected, run_program, traced
from cuda_targets import on_each
from golden import assert_same
from targets import assert_close, checked

import pullback as pb
from pullback.codegen import carrying, cuda_launch
from pullback.codegen.schedule import schedule
from pullback.ir import Module
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module

PATHS = sorted((Path(__file__).parent / "products").glob("*.ir"))
ROLES = ("large", "small", "part")

def some(dtype: Any, *shape: int) -> Any:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(shape[0]).integers(-3, 4, shape).astype(dtype)


def choose(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """Have the launches of a role taken, whatever the extents."""
    monkeypatch.setattr(cuda_launch, "ENOUGH_TILES", {"large": 1, "small": 1 << 40, "part": 10}[role])
    monkeypatch.setattr(cuda_launch, "LEAST_TERMS", {"large": 1 << 40, "small": 1 << 40, "part": 5}[role])


def run_module(machine: Make, module: Module, arguments: list[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """What a program with its kernels gives through CUDA C."""
    program, *kernels = module.functions
    scheduled = checked(Module((program, *(schedule(kernel, "cuda") for kernel in kernels))))
    running = CudaProgram(dict(sizes), scheduled, machine)
    env = dict(zip(program.parameters, arguments, strict=True))
    running.block(program.body, env)
    return tuple(np.asarray(env[v]) for v in program.results)


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(machine: Make, dtype: Any) -> None:
    shapes = [(70, 37), (37, 65), (37, 70), (65, 37), (4, 20, 9), (4, 9, 35), (0, 5), (5, 0), (2, 3, 17, 8)]
    args = [some(dtype, *s) for s in shapes]

    def call(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, m: Any) -> Any:
        return a @ b, c.T @ b, a @ d.T, c.T @ d.T, e @ f, g @ h, h @ g, m @ np.swapaxes(m, 2, 3)

    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_tiles(machine: Make, dtype: Any) -> None:
    """Of which there must be 128."""
    a, b = some(dtype, 130, 70 if dtype is np.float64 else 130, 17), some(dtype, 130, 17, 5)
    function, values = traced(lambda a, b: (a @ b, np.swapaxes(b, 1, 2) @ np.swapaxes(a, 1, 2)), a, b)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_products_with_neighbours(machine: Make, path: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, role)
    module = checked(parse_module(path.read_text()))
    program = module.functions[0]
    for sizes in ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (5, 35, 36), (150, 41, 133), (64, 72, 128)):
        known = dict(zip("mkn", sizes, strict=True))
        rng = np.random.default_rng(sum(sizes))
        arguments: list[Any] = [
            rng.normal(size=[known[e] for e in v.type.shape]).astype(v.type.dtype.numpy) for v in program.parameters
        ]
        wanted = interpret(program, *arguments, sizes=known, module=module)
        found = run_module(machine, module, arguments, known)
        for a, b in zip(found, wanted, strict=True):
            assert_close(a, b, 4 + sizes[1], floor=1.0, note=(sizes, role))


FORMS = {
    "f32": [("plain", "plain"), ("plain", "turned"), ("turned", "plain"), ("turned", "turned"), ("strided", "both"),
            ("scaled", "plain"), ("masked", "turned"), ("gathered", "both")],
    "f64": [("plain", "turned"), ("turned", "plain"), ("scaled", "both"), ("gathered", "plain")],
    "f16": [("plain", "plain"), ("turned", "turned"), ("scaled", "both"), ("gathered", "plain")],
    "bf16": [("plain", "turned"), ("turned", "plain"), ("strided", "turned"), ("masked", "plain")],
}  # fmt: skip
SIZES = ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (5, 39, 36), (150, 41, 133), (64, 72, 128))


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("dtype", "left", "right"), [(dtype, *form) for dtype, forms in FORMS.items() for form in forms])
def test_forms(machine: Make, dtype: str, left: str, right: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands as they lie, turned, computed, masked, gathered; sums with a value of their row and one of their column."""
    choose(monkeypatch, role)
    module = checked(parse_module(product_forms.text(dtype, left, right)))
    for m, k, n in SIZES:
        given = product_forms.arguments(dtype, left, right, m, k, n)
        run_module(machine, module, list(given.values()), {"m": m, "k": k, "n": n})
        product_forms.check(dtype, left, right, given, 53 if dtype == "f64" else 24)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_neighbours(machine: Make, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements before and after, sums down the columns, batches; the gradient of a layer."""
    monkeypatch.setattr(carrying, "TARGETS", frozenset({"cuda"}))
    x, w, b, xs, ws = (some(dtype, *s) for s in ((70, 37), (37, 65), (65,), (3, 9, 8), (3, 8, 7)))

    def layer(x: Any, w: Any, b: Any) -> Any:
        return np.sum(np.maximum(x @ w + b, 0) * b)

    def call(x: Any, w: Any, b: Any, xs: Any, ws: Any) -> Any:
        z = (x * 2) @ np.maximum(w, 0) + b
        batch = xs @ ws - 1
        gradients = pb.value_and_grad(layer, argnums=(0, 1, 2))(x, w, b)
        return z, np.abs(z), np.sum(z, axis=0), np.max(z), batch, np.sum(batch, axis=1), np.sum(batch), x[::-1] @ w, *gradients

    function, values = traced(call, x, w, b, xs, ws)
    assert_same(run_program(machine, function, values), expected(function, values))
