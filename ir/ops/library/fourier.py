"""Discrete Fourier transforms along one axis, by the loops of NumPy's pocketfft, without scaling.

``fft`` is y[k] = sum of x[j] exp(-2 pi i j k / n) and ``ifft`` the same with exp(+...); each is its own transpose. ``rfft``
computes the first n // 2 + 1 values for real x, and ``irfft`` n real values from such a half spectrum, whose other half is
conjugate. Each of the two is the other's transpose, up to conjugation and a factor 2 for values with a partner in the other
half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Contribution, Op, Region, Same, resolve
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import COMPLEX_OF, F32, F64, I64, ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import const_like
from pullback.ir.ops.kernel.kernel import KERNEL
from pullback.ir.ops.library.routines import Library

# kernels


MODULE = "numpy.fft._pocketfft_umath"


def _run(routine: str, x: Any, out: Any, axis: int) -> None:
    """Call a loop of pocketfft from Python."""
    resolve(f"{MODULE}.{routine}")(x, x.real.dtype.type(1), axes=[(axis,), (), (axis,)], out=out)


def _view_complex(ref: Any, is_complex: bool) -> Any:
    """View pairs of parts along the last axis as complex numbers in the same memory."""
    return ref.view(np.result_type(ref.dtype, np.complex64))[..., 0] if is_complex else ref


def _fft_1d(x: Any, out: Any, routine: str, axis: int) -> None:
    _run(routine, _view_complex(x, routine[0] != "r"), _view_complex(out, routine != "irfft"), axis)


class Fft1d(Library):
    """A pocketfft loop. Operands: the values and the results, dense; complex ones as parts along a last axis. ``routine``
    names the loop; the transforms are along ``axis``, the first or the last axis (not counting the axis of parts)."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        refs = [t for t in types if isinstance(t, RefType) and t.layout == "c" and t.dtype in (F32, F64)]
        if len(refs) != 2 or len(types) != 2 or refs[0].dtype is not refs[1].dtype:
            raise TypeError("takes two dense references of f32 or of f64")
        return ()

    def call(self, operands: Sequence[Any], params: Mapping[str, Any]) -> None:
        self.function(*operands, **params)


fft_1d = Fft1d(
    name="fft_1d", reference=_fft_1d, routine=f"{MODULE}.{{}}", ranks=(), reads=(0,), writes=(1,),
    arguments=lambda params: [], fit=lambda shapes, params, same: None,
    products=lambda shapes, params: int(2.5 * np.prod(shapes[0]) * np.log2(max(2, shapes[0][params["axis"]]))),
    vocabularies=KERNEL,
)  # fmt: skip


# transforms


@dataclass(frozen=True, eq=False, kw_only=True)
class Fourier(Op):
    """A Fourier transform. Params: ``axis``; for ``rfft`` and ``irfft`` also ``odd`` (whether n is odd) and ``shape`` of the
    result."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (x,) = types
        if not isinstance(x, ArrayType) or not 0 <= params["axis"] < x.rank:
            raise TypeError("takes an array that has the axis")
        if x.dtype.is_complex is (self.name == "rfft") or (x.dtype.part if x.dtype.is_complex else x.dtype) not in COMPLEX_OF:
            raise TypeError(f"takes {'floats' if self.name == 'rfft' else 'complex numbers'}, found {x}")
        if "shape" not in params:
            return (x,)
        shape, axis = tuple(params["shape"]), params["axis"]
        for k, (e, f) in enumerate(zip(x.shape, shape, strict=True)):
            if k != axis:
                same(e, f)
        length, half = (x.shape[axis], shape[axis]) if self.name == "rfft" else (shape[axis], x.shape[axis])
        if isinstance(length, int) and isinstance(half, int) and (half != length // 2 + 1 or length % 2 != params["odd"]):
            raise TypeError(f"{half} complex numbers do not stand for {length} real ones")
        return (ArrayType(COMPLEX_OF[x.dtype] if self.name == "rfft" else x.dtype.part, shape),)

    def routine(self, params: Mapping[str, Any]) -> str:
        """Return the name of the loop."""
        return f"rfft_n_{'odd' if params['odd'] else 'even'}" if self.name == "rfft" else self.name


def _is_edge(b: Any, z: Value, axis: int, odd: bool) -> Value:
    """Return whether a value of a half spectrum has no conjugate in the other half: the first and, for even n, the last."""
    position = b.iota(shape=z.type.shape, axis=axis, dtype=I64)
    is_first: Value = b.eq(position, b.zeros_like(position))
    if odd:
        return is_first
    last = b.sub(b.count(shape=(z.type.shape[axis],)), b.const(1, I64))
    is_edge: Value = b.bitor(is_first, b.eq(position, b.spread(last, z.type.shape)))
    return is_edge


def _scale_inner(b: Any, z: Value, axis: int, odd: bool, factor: float) -> Value:
    """Multiply the values that have a conjugate in the other half by ``factor``."""
    result: Value = b.select(_is_edge(b, z, axis, odd), z, b.mul(z, const_like(b, factor, z)))
    return result


def _fft_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    return [b.emit(op, (cts[0],), params)[0]]


def _rfft_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    axis, odd = params["axis"], params["odd"]
    return [b.irfft(_scale_inner(b, b.conj(cts[0]), axis, odd, 0.5), axis=axis, odd=odd, shape=inputs[0].type.shape)]


def _irfft_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    axis, odd = params["axis"], params["odd"]
    return [_scale_inner(b, b.conj(b.rfft(cts[0], axis=axis, odd=odd, shape=inputs[0].type.shape)), axis, odd, 2.0)]


def _transformed(routine: str, x: Any, axis: int, shape: tuple[int, ...] | None = None) -> Any:
    kind = x.real.dtype if routine == "irfft" else np.result_type(x.dtype, np.complex64)
    out = np.empty(x.shape if shape is None else shape, kind)
    _run(routine, x, out, axis)
    return out


fft = Fourier(name="fft", reference=lambda x, axis: _transformed("fft", x, axis), pullback=_fft_rule)
ifft = Fourier(name="ifft", reference=lambda x, axis: _transformed("ifft", x, axis), pullback=_fft_rule)
rfft = Fourier(
    name="rfft", reference=lambda x, axis, odd, shape: _transformed(f"rfft_n_{'odd' if odd else 'even'}", x, axis, shape),
    pullback=_rfft_rule, typed=("shape",), extents=("shape",),
)  # fmt: skip
irfft = Fourier(
    name="irfft", reference=lambda x, axis, odd, shape: _transformed("irfft", x, axis, shape),
    pullback=_irfft_rule, typed=("shape",), extents=("shape",),
)  # fmt: skip
