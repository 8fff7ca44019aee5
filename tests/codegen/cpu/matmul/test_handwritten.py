"""Kernels with a matrix product and its neighbours (tests/golden/matmul), written by hand: on the CPU as the interpreter says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.schedule import schedule
from pullback.ir import Module
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module
from pullback.runtime.program.executable import Executable
from pullback.runtime.threads import threads
from tests.support.matmul.kernels import batch_text
from tests.support.paths import GOLDEN
from tests.support.targets import assert_close, checked

PATHS = sorted((GOLDEN / "matmul").glob("*.ir"))
SIZES = ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 7, 5), (6, 1, 9), (5, 8, 1), (17, 33, 15), (13, 20, 41), (40, 300, 50))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products(path: Path, sizes: tuple[int, int, int]) -> None:
    module = checked(parse_module(path.read_text()))
    program, *kernels = module.functions
    known = dict(zip("mkn", sizes, strict=True))
    rng = np.random.default_rng(sum(sizes))
    arguments: list[Any] = [
        rng.normal(size=[known[e] for e in v.type.shape]).astype(v.type.dtype.numpy) for v in program.parameters
    ]
    (expected,) = interpret(program, *arguments, sizes=known, module=module)
    scheduled = checked(Module((program, *map(schedule, kernels))))
    (result,) = Executable(scheduled).run(arguments, known)
    assert_close(result, expected, 4 + sizes[1], floor=1.0, note=sizes)


@pytest.mark.parametrize("sizes", [(700, 20, 90), (1500, 300, 70), (64, 600, 900)], ids=str)
def test_parts_of_several_blocks(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    module = checked(parse_module((GOLDEN / "matmul" / "column_sums.ir").read_text()))
    program, *kernels = module.functions
    executable = Executable(checked(Module((program, *map(schedule, kernels)))))
    rng = np.random.default_rng(m)
    x, s, w = (rng.normal(size=shape) for shape in ((m, k), m, (k, n)))
    before = threads.get_num_threads()
    result = []
    try:
        for count in (1, 2, 3, 7):
            threads.set_num_threads(count)
            result.append(executable.run([x, s, w], {"m": m, "k": k, "n": n})[0])
    finally:
        threads.set_num_threads(before)
    product = (x @ w) * s[:, None]
    assert_close(result[0], np.stack([product.sum(0), product.max(0)]), 64 * k, floor=np.sqrt(m * k))
    assert all((each == result[0]).all() for each in result)


BATCH = """pullback-ir 2

program f(%x: &f32[b,m,k], %w: &f32[b,n,k]) -> (&f32[b,m,n]) {
  %out: &f32[b,m,n] = alloc
  launch %x, %w, %out {kernel=k, sizes=[b,m,k,n]}
  return %out
}
""" + batch_text("f32", ("zmk", "znk", "zmn")).removeprefix("pullback-ir 2\n")


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("sizes", [(200, 40, 50, 30), (70, 100, 600, 33), (3, 5, 0, 4), (1, 300, 300, 300)], ids=str)
def test_batches(sizes: tuple[int, int, int, int], apart: bool) -> None:
    b, m, k, n = sizes
    text = BATCH if apart else BATCH.replace(" {independent=true}", "")
    program, *kernels = checked(parse_module(text)).functions
    executable = Executable(checked(Module((program, *map(schedule, kernels)))))
    rng = np.random.default_rng(b)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((b, m, k), (b, n, k)))
    before = threads.get_num_threads()
    try:
        for count in (1, 2, 7):
            threads.set_num_threads(count)
            (result,) = executable.run([x, w], {"b": b, "m": m, "k": k, "n": n})
            assert_close(result, x @ w.transpose(0, 2, 1), 4 * k + 4, floor=np.sqrt(k + 1))
    finally:
        threads.set_num_threads(before)
