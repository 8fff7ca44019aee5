"""Look-ups in tables of constants: permutations of registers where the processor has them, compared with the interpreter."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.targets import Target
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile.engine import Engine

COUNTS = (1, 2, 4, 8, 16, 32, 64)
KERNEL = """pullback-ir 2

kernel k(%x: &{index}[s0], %other: &{other}[s0], %y: &{value}[s0]) -> () {{
  %n: i64[] = extent {{size=s0}}
  for %n {{map="{map}"}} (%i: i64[]) {{
    %at: {index}[] = load %x, %i
    %wider: {other}[] = load %other, %i
    store %wider, %other, %i
    %found: {value}[] = lookup %at {{values={values}}}
    store %found, %y, %i
    yield
  }}
  return
}}
"""
LEVELS = ("baseline", "avx2", "avx512")


def engine_of(level: str) -> Engine:
    try:
        return Engine(KernelCache(), level=level)
    except ValueError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("other", ["u8", "u64"])
def test_lookups_are_the_interpreters(level: str, bits: int, other: str) -> None:
    """At random bits, with tables of every size; ``other`` makes the vectors narrower."""
    engine = engine_of(level)
    rng = np.random.default_rng(0)
    for count in COUNTS:
        for how in ("vector", "serial"):
            values = [float(v) for v in rng.integers(-99, 99, count)]
            words = {"index": f"u{bits}", "value": f"f{bits}", "other": other, "map": how, "values": values}
            kernel = parse_module(KERNEL.format(**words)).functions[0]
            x = rng.integers(0, 2**63, 37, dtype=np.uint64).astype(f"u{bits // 8}")
            passed = np.zeros(37, other.replace("u8", "u1").replace("u64", "u8"))
            y = np.zeros(37, f"f{bits // 8}")
            host = engine.host()
            text = emit(kernel, "k", host.target).text
            slots = np.array([x.ctypes.data, passed.ctypes.data, y.ctypes.data, x.size], np.int64)
            run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.load(text, symbols=["k"])["k"])
            assert run(slots.ctypes.data) == 0
            assert np.array_equal(y, np.array(values, y.dtype)[x % np.uint64(count)]), (level, count, how)
            expected = np.zeros_like(y)
            interpret(kernel, x, passed, expected)
            assert np.array_equal(y, expected)


def test_permutations_are_refused_for_narrower_machines() -> None:
    engine = engine_of("avx512")
    words = {"index": "u64", "value": "f64", "other": "u64", "map": "vector", "values": [1.0] * 8}
    kernel = parse_module(KERNEL.format(**words)).functions[0]
    text = emit(kernel, "k", Target(64)).text
    assert "permvar" in text and engine.compile(text)
    with pytest.raises(Exception, match="not accepted"):
        engine_of("avx2").compile(text)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tables", [2, 3, 4, 7])
@pytest.mark.parametrize("count", [1, 8, 16, 64])
def test_lookups_by_one_index(level: str, tables: int, count: int) -> None:
    """Each of several tables, in vectors and after their end; where a register holds four doubles, they are read two by two."""
    engine = engine_of(level)
    rng = np.random.default_rng(1)
    values = rng.integers(-99, 99, (tables, count)).astype(float)
    result = "\n".join(
        f"    %f{k}: f64[] = lookup %at {{values={row.tolist()}}}\n    store %f{k}, %y{k}, %i" for k, row in enumerate(values)
    )
    kernel = parse_module(f"""pullback-ir 2

kernel k(%x: &u64[s0], {", ".join(f"%y{k}: &f64[s0]" for k in range(tables))}) -> () {{
  %n: i64[] = extent {{size=s0}}
  for %n {{map="vector"}} (%i: i64[]) {{
    %at: u64[] = load %x, %i
{result}
    yield
  }}
  return
}}
""").functions[0]
    x, y = rng.integers(0, 2**63, 39, dtype=np.uint64), np.zeros((tables, 39))
    host = engine.host()
    text = emit(kernel, "k", host.target).text
    slots = np.array([x.ctypes.data, *(row.ctypes.data for row in y), x.size], np.int64)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.load(text, symbols=["k"])["k"])
    assert run(slots.ctypes.data) == 0
    assert np.array_equal(y, values[:, x % np.uint64(count)])
    expected = np.zeros_like(y)
    interpret(kernel, x, *expected)
    assert np.array_equal(y, expected)
    assert ("load <2 x double>" in text) == (host.vector_bytes == 32 and tables > 2)
