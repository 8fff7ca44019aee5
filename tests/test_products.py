"""Matrix products in parts: no part has an axis, or columns further apart, than the integers of the library can say."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pullback.ir.ops.library import gemm
from pullback.runtime import crew, products
from pullback.runtime.crew_state import FIELDS, STATE_BYTES
from pullback.runtime.engine import default_engine
from pullback.runtime.products import GEMM

MOST = 32
SIZES = [(3, 4, 5), (24, 24, 24), (33, 3, 4), (3, 33, 4), (3, 4, 33), (100, 3, 70), (70, 49, 2), (40, 41, 43), (40, 0, 3)]
POINTERS = [ctypes.c_void_p] * len(GEMM)


def number(address: int, kind: Any) -> Any:
    return kind.from_address(address).value


class Recorded:
    """A routine that multiplies by NumPy, and what it was told."""

    def __init__(self) -> None:
        self.calls: list[dict[str, int]] = []
        self.routine = ctypes.CFUNCTYPE(None, *POINTERS)(self.multiply)

    def multiply(self, *given: int) -> None:
        at = dict(zip(GEMM, given, strict=True))
        told = {name: number(at[name], ctypes.c_int32) for name in ("m", "n", "k", "lda", "ldb", "ldc")}
        self.calls.append(told)
        a, b = (self.operand(at, told, name) for name in "ab")
        c = self.columns(at["c"], told["m"], told["n"], told["ldc"])
        beta, alpha = (number(at[name], ctypes.c_double) for name in ("beta", "alpha"))
        c[...] = alpha * (a @ b) + (beta * c if beta else 0.0)

    def operand(self, at: dict[str, int], told: dict[str, int], name: str) -> Any:
        rows, columns = (told["m"], told["k"]) if name == "a" else (told["k"], told["n"])
        is_plain = number(at[f"t{name}"], ctypes.c_char) == b"N"
        shape = (rows, columns) if is_plain else (columns, rows)
        found = self.columns(at[name], *shape, told[f"ld{name}"])
        return found if is_plain else found.T

    def columns(self, address: int, rows: int, columns: int, apart: int) -> Any:
        assert apart >= max(rows, 1)
        count = (columns - 1) * apart + rows if rows and columns else 0
        line = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_double)), (max(count, 1),))
        return np.lib.stride_tricks.as_strided(line, (rows, columns), (8, 8 * apart))


@pytest.fixture(scope="module")
def multiply() -> Any:
    """``gemm`` of a crew of one, for a library of very small integers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "MOST", MOST)
        code = default_engine().load(crew.source(False), symbols=["pullback_crew_gemm"])
    state = (ctypes.c_int64 * (STATE_BYTES // 8))()
    state[FIELDS.index("threads")] = 1
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64, pointer)(code["pullback_crew_gemm"])

    def run(left: Any, right: Any, ta: bool, tb: bool) -> tuple[Any, list[dict[str, int]]]:
        """As an emitted call does it: the row-major product is the transposed one by columns."""
        (m, _), n = left.shape[:: -1 if ta else 1], right.shape[0 if tb else 1]
        out, recorded = np.full((m, n), np.nan), Recorded()
        refs, kept = [left, right, out], []
        for kind, *what in gemm.arguments({"ta": ta, "tb": tb}):
            match kind:
                case "letter":
                    kept.append(ctypes.c_char(what[0].encode()))
                case "number":
                    kept.append(ctypes.c_double(what[0]))
                case "extent":
                    kept.append(ctypes.c_int64(refs[what[0]].shape[what[1]]))
                case "lead":
                    kept.append(ctypes.c_int64(max(refs[what[0]].shape[1], 1)))
                case "ref":
                    kept.append(refs[what[0]])
        places = [a.ctypes.data if isinstance(a, np.ndarray) else ctypes.addressof(a) for a in kept]
        arguments = (ctypes.c_void_p * len(places))(*places)
        function(ctypes.addressof(state), ctypes.cast(recorded.routine, ctypes.c_void_p), 8, ctypes.addressof(arguments))
        return out, recorded.calls

    return run


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_parts_fit_the_library(multiply: Any, m: int, k: int, n: int, ta: bool, tb: bool) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, shape).astype(float) for shape in ((m, k), (k, n)))
    out, calls = multiply(*(np.ascontiguousarray(x.T) if turned else x for x, turned in ((a, ta), (b, tb))), ta, tb)
    np.testing.assert_array_equal(out, a @ b)
    assert max(max(told.values()) for told in calls) <= MOST
    if max(m, k, n) <= MOST:
        assert len(calls) == 1


def test_nothing_is_called_for_products_without_elements(multiply: Any) -> None:
    out, calls = multiply(np.ones((0, 3)), np.ones((3, 40)), False, False)
    assert (out.shape, calls) == ((0, 40), [])
