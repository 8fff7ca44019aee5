"""Elementwise ops and combiners as expressions of CUDA C."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pullback.codegen.analysis.independence import IDENTITIES
from pullback.codegen.cuda.source.names import HALF, literal, loaded, stored, type_name, unsigned
from pullback.ir.core.op import OPS
from pullback.ir.core.types import F64, DType
from pullback.ir.ops.elementwise.elementwise import Elementwise, bitcast, cast

OF_BITS = frozenset({"nextafter"})
"""Functions of floats' bits, which of 16 bits are other than of 32."""


def identity(name: str, dtype: DType) -> str:
    """What a combiner changes nothing with."""
    return literal(IDENTITIES[name](dtype), dtype)


def spelled(op: Elementwise, texts: Sequence[str], dtype: DType, result: DType, params: dict[str, object] | None = None) -> str:
    """An elementwise op as an expression. Integer sums and products are made of unsigned numbers, which wrap around."""
    spelling = op.spelling("cuda", dtype.kind)
    if not spelling:
        raise NotImplementedError(f"{op.name} has no CUDA spelling")
    if dtype.is_integer and result is dtype and re.search(r"^-|[+*-]|<<", spelling) and "(" not in spelling:
        texts = [f"({unsigned(dtype)}){t}" for t in texts]
        spelling = f"({{t}})({spelling})"
    return spelling.format(*texts, t=type_name(result), **(params or {}))


def of_half(op: Elementwise, texts: Sequence[str], dtype: DType, result: DType, params: dict[str, object]) -> str:
    """An op that takes or gives floats of 16 bits, which are rounded from what it gives, once."""
    if op is bitcast:
        return loaded(texts[0], result) if result.name in HALF else stored(texts[0], dtype)
    if op.name in OF_BITS:
        raise NotImplementedError(f"{op.name} of {dtype} has no CUDA spelling")
    given = dtype if op is cast and dtype is F64 else result
    text = spelled(op, texts, dtype, given, params)
    return text if op.gives == "select" or result.name not in HALF else f"pb_round_{result}({text})"


def join_text(name: str, dtype: DType, left: str, right: str) -> str:
    """Two partial results combined; pairs go through ``Writer.results``."""
    op = OPS[name]
    assert isinstance(op, Elementwise)
    return spelled(op, [left, right], dtype, dtype)
