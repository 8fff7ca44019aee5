"""Complex numbers: their parts, and their layout in memory.

Array ops take complex values as they take real ones. ``split`` rewrites a func so that complex values are left only at memory
boundaries: parameters, results, and operands and results of ops with kernels of their own. There ``view_as_real`` and
``view_as_complex`` reinterpret the memory of c128[n] as f64[n,2] and back; ``component`` reads the real or the imaginary part,
and ``interleave`` joins the two (or any arrays of one type) along a new axis.

A cotangent of z = x + iy is dL/dx - i dL/dy, as in HIPS autograd and JAX: a function with a complex derivative multiplies by
it, and nothing is conjugated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import COMPLEX_OF, I64, ArrayType, Shape, Type, interleaved
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.elementwise.elementwise import Elementwise, as_complex, each

FUNC = frozenset({"func"})

# parts


def _complex(re: Any, im: Any) -> Any:
    out = np.empty(np.shape(re), np.result_type(re, np.complex64))
    out.real, out.imag = re, im
    return out


real = Elementwise(
    name="real", reference=lambda x: np.real(x), kinds="c", gives="part", linear=True, cheap=True, vocabularies=FUNC,
    pullback=each(lambda b, ct, out, x: as_complex(b, ct)), finite=True,
)  # fmt: skip
imag = Elementwise(
    name="imag", reference=lambda x: np.imag(x), kinds="c", gives="part", linear=True, cheap=True, vocabularies=FUNC,
    pullback=each(lambda b, ct, out, x: b.complex(b.zeros_like(ct), b.neg(ct))), finite=True,
)  # fmt: skip
conj = Elementwise(
    name="conj", reference=lambda x: np.conjugate(x), kinds="c", linear=True, cheap=True, vocabularies=FUNC,
    pullback=each(lambda b, ct, out, x: b.conj(ct)), finite=True,
)  # fmt: skip
complex_ = Elementwise(
    name="complex", reference=_complex, arity=2, gives="complex", linear=True, cheap=True, vocabularies=FUNC,
    pullback=each(lambda b, ct, out, x, y: b.real(ct), lambda b, ct, out, x, y: b.neg(b.imag(ct))), finite=True,
)  # fmt: skip
reciprocal = Elementwise(
    name="reciprocal", reference=lambda x: np.reciprocal(x), kinds="c", cheap=True, vocabularies=FUNC,
    pullback=each(lambda b, ct, out, x: b.neg(b.mul(ct, b.mul(out, out)))),
)  # fmt: skip


# memory


@dataclass(frozen=True, eq=False, kw_only=True)
class Reinterpret(Reindex):
    """The operand's memory as elements of another type."""

    to_complex: bool

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (x,) = types
        if not isinstance(x, ArrayType):
            raise TypeError("takes an array")
        if not self.to_complex:
            if not x.dtype.is_complex:
                raise TypeError(f"takes complex numbers, found {x}")
            return (interleaved(x),)
        if x.dtype not in COMPLEX_OF or not x.rank:
            raise TypeError(f"takes pairs of floats, found {x}")
        same(x.shape[-1], 2)
        return (ArrayType(COMPLEX_OF[x.dtype], x.shape[:-1]),)


class Interleave(Op):
    """Arrays of one type stacked along a new last axis, such as real and imaginary parts, or along the new axis ``axis``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        x, *others = types
        if not isinstance(x, ArrayType) or not others:
            raise TypeError("takes two arrays or more")
        for y in others:
            if not isinstance(y, ArrayType) or x.dtype is not y.dtype or x.rank != y.rank:
                raise TypeError("takes arrays of one type")
            for e, f in zip(x.shape, y.shape, strict=True):
                same(e, f)
        axis = params.get("axis", x.rank)
        if not 0 <= axis <= x.rank:
            raise TypeError(f"axis {axis} is not of a result of rank {x.rank + 1}")
        return (x.with_shape((*x.shape[:axis], len(types), *x.shape[axis:])),)


def _check_parts(x: ArrayType) -> None:
    """Raise TypeError unless ``x`` has the dtype of a part of complex numbers."""
    if x.dtype not in COMPLEX_OF:
        raise TypeError(f"takes floats of 32 or 64 bits, found {x}")


def _no_access(*_: Any) -> Any:
    raise AssertionError("memory is reinterpreted outside kernels")


def _view_as_real(x: Any) -> Any:
    return x[..., None].view(x.real.dtype)


def _view_as_complex(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.result_type(x.dtype, np.complex64)).reshape(x.shape[:-1])


def _component_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,) = types
    _check_parts(x)
    same(x.shape[-1], 2)
    return x.shape[:-1]


MADE_BY_SPLIT = "it is made after gradients are"

view_as_real = Reinterpret(
    name="view_as_real", reference=_view_as_real, to_complex=False, view=True, access=_no_access, nondifferentiable=MADE_BY_SPLIT,
    shape=lambda types, params, same: (*types[0].shape, 2),
)  # fmt: skip
view_as_complex = Reinterpret(
    name="view_as_complex", reference=_view_as_complex, to_complex=True, view=True, access=_no_access,
    nondifferentiable=MADE_BY_SPLIT, shape=lambda types, params, same: types[0].shape[:-1],
)  # fmt: skip
component = Reindex(
    name="component", reference=lambda x, index: x[..., index], shape=_component_shape, nondifferentiable=MADE_BY_SPLIT,
    access=lambda b, index, types, params, extent: [(0, [*index, b.const(params["index"], I64)], None)],
)  # fmt: skip
interleave = Interleave(
    name="interleave", reference=lambda *parts, axis=-1: np.stack(parts, axis), nondifferentiable=MADE_BY_SPLIT
)
