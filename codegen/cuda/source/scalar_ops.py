"""Expressions of CUDA C for elementwise ops and combiners."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pullback.codegen.analysis.independence import IDENTITIES
from pullback.codegen.cuda.source.names import HALF, literal, loaded, stored, type_name, unsigned
from pullback.ir.core.op import OPS
from pullback.ir.core.types import F64, DType
from pullback.ir.ops.elementwise.elementwise import Elementwise, bitcast, cast

BITWISE_FUNCTIONS = frozenset({"nextafter"})
"""Functions of a float's bits, which differ between 16 and 32 bits."""


def identity(name: str, dtype: DType) -> str:
    """Return the literal of a combiner's identity."""
    return literal(IDENTITIES[name](dtype), dtype)


def expression(
    op: Elementwise, texts: Sequence[str], dtype: DType, result: DType, params: dict[str, object] | None = None
) -> str:
    """Return the expression of an elementwise op. Integer sums and products are computed in unsigned types, which wrap around."""
    spelling = op.template("cuda", dtype.kind)
    if not spelling:
        raise NotImplementedError(f"{op.name} has no CUDA spelling")
    if dtype.is_integer and result is dtype and re.search(r"^-|[+*-]|<<", spelling) and "(" not in spelling:
        texts = [f"({unsigned(dtype)}){t}" for t in texts]
        spelling = f"({{t}})({spelling})"
    return spelling.format(*texts, t=type_name(result), **(params or {}))


def half_expression(op: Elementwise, texts: Sequence[str], dtype: DType, result: DType, params: dict[str, object]) -> str:
    """Return the expression of an op with 16-bit float operands or results; a result is rounded once."""
    if op is bitcast:
        return loaded(texts[0], result) if result.name in HALF else stored(texts[0], dtype)
    if op.name in BITWISE_FUNCTIONS:
        raise NotImplementedError(f"{op.name} of {dtype} has no CUDA spelling")
    computed = dtype if op is cast and dtype is F64 else result
    text = expression(op, texts, dtype, computed, params)
    return text if op.gives == "select" or result.name not in HALF else f"pb_round_{result}({text})"


def combine_expression(name: str, dtype: DType, left: str, right: str) -> str:
    """Return the expression that combines two partial results; pairs go through ``PartialResultText.results``."""
    op = OPS[name]
    assert isinstance(op, Elementwise)
    return expression(op, [left, right], dtype, dtype)
