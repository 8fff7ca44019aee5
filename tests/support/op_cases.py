"""Cases of ops, generated from the op table: operand types, params, and random operands inside each op's domain.

An elementwise op or a reduction needs nothing here: it gets cases from its family, and the domain (0.2, 0.9) unless
``DOMAINS`` has another. Ops of other families need params that fit their operands; ``params_of`` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback.ir import DTYPES, OPS, ArrayType, Builder, DType, Function, Op, Value
from pullback.ir.core.types import I64
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather, Place, Scatter, ScatterPart
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.library.family import Composed, Linalg, transpose
from pullback.ir.ops.library.fourier import Fourier
from pullback.ir.ops.library.sort import Sort

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (0,), (2, 0), (1, 2, 2))
BY_KIND = {
    "b": ("bool",), "i": ("i64", "i8"), "u": ("u8", "u64"), "f": ("f64", "f32"), "c": ("c128", "c64"),
}  # fmt: skip
ENTIRE = "sin cos exp exp2 expm1 tanh sinh cosh asinh atan erf erfc expit add sub mul neg maximum minimum fmax fmin"
SMOOTH = """ndtr log_ndtr erfcx owens_t i0 i1 i0e i1e j0 j1 airy_ai airy_aip airy_bi airy_bip ber bei berp beip sici_si sici_ci
shichi_shi shichi_chi dawsn erfi exprel wrightomega k0 k1 k0e k1e ker kei kerp keip exp1 expi fresnel_s fresnel_c spence"""
ORDERS = "jv yv iv ive kv kve struve modstruve"
INVERSES = "gammaincinv gammainccinv stdtrit"
BETAS = "betainc betaincc betaincinv betainccinv"
DOMAINS: dict[str, tuple[tuple[float, float], ...]] = {
    **dict.fromkeys(ENTIRE.split(), ((-2.0, 2.0),)),
    **dict.fromkeys(SMOOTH.split(), ((0.3, 2.0),)),
    **dict.fromkeys(("gammainc", "gammaincc"), ((0.6, 3.0), (0.5, 4.0))),
    **dict.fromkeys(INVERSES.split(), ((1.2, 3.0), (0.2, 0.8))),
    **dict.fromkeys(ORDERS.split(), ((0.3, 2.4), (0.6, 3.0))),
    **dict.fromkeys(("riemann_zeta", "zetac"), ((1.5, 4.0),)),
    "expn": ((0.6, 3.0),),
    "expn_at": ((1.0, 1.0), (0.6, 3.0)),
    **dict.fromkeys(("ellipj_sn", "ellipj_cn", "ellipj_dn", "ellipj_ph"), ((0.3, 2.0), (0.05, 0.7))),
    **dict.fromkeys(("ellipkinc", "ellipeinc"), ((0.3, 1.4), (0.05, 0.7))),
    **dict.fromkeys(BETAS.split(), ((1.2, 3.0), (1.2, 3.0), (0.2, 0.8))),
    "abs": ((-2.0, -0.2),),
    "beta": ((0.6, 3.0),),
    "betaln": ((0.6, 3.0),),
    "binom": ((3.2, 5.0), (0.6, 2.0)),
    "acosh": ((1.2, 3.0),),
    "clip": ((-1.0, 2.0), (0.0, 0.4), (0.6, 1.0)),
    "copysign": ((0.2, 2.0), (-2.0, -0.2)),
    "div": ((-2.0, 2.0), (0.3, 2.0)),
    "floordiv": ((4.1, 4.9), (0.81, 0.99)),
    "fmod": ((-4.9, -4.1), (0.81, 0.99)),
    "gamma": ((0.6, 4.0),),
    "gammaln": ((0.6, 4.0),),
    "hyp0f1": ((0.4, 3.0), (-2.0, 2.0)),
    "hyp1f1": ((0.4, 2.0), (0.4, 3.0), (-2.0, 2.0)),
    "hyp2f1": ((0.4, 2.0), (0.4, 2.0), (0.4, 3.0), (-0.6, 0.6)),
    "hyperu": ((0.4, 1.6), (0.4, 1.6), (0.6, 2.0)),
    "logaddexp": ((-3.0, 3.0),),
    "lpmv": ((1.0, 1.0), (1.2, 3.0), (-0.8, 0.8)),
    "mod": ((-4.9, -4.1), (0.81, 0.99)),
    "ndtri_exp": ((-3.0, -0.2),),
    "poch": ((0.6, 3.0), (0.3, 2.0)),
    "shl": ((0, 5),),
    "shr": ((0, 5),),
    "stdtr": ((1.2, 4.0), (-2.0, 2.0)),
    "tan": ((-1.2, 1.2),),
    "y0": ((0.6, 3.0),),
    "y1": ((0.6, 3.0),),
    "zeta": ((1.5, 4.0), (0.5, 3.0)),
}
# whose series SciPy sums for minutes, or which fail within, where parameters are huge
ENDLESS = ("hyp0f1", "hyp1f1", "hyp2f1", "hyperu", "lpmv")
DEFAULT = ((0.2, 0.9),)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One use of an op. ``bounds`` limits the integers that are indices, by operand position.

    ``make(rng, types)`` draws operands that have to fit each other; ``build(b, operands, params)`` emits the op where it is to be
    met with other ops before it.
    """

    op: Op
    types: tuple[ArrayType, ...]
    params: dict[str, Any] = field(default_factory=dict)
    bounds: dict[int, int] = field(default_factory=dict)
    make: Callable[..., list[Any]] | None = None
    build: Callable[..., tuple[Value, ...]] | None = None

    def __str__(self) -> str:
        params = "".join(f" {k}={v}" for k, v in self.params.items())
        return f"{self.op.name}({', '.join(map(str, self.types))}){params}"

    def arguments(self, rng: np.random.Generator) -> list[Any]:
        """Random operands."""
        if self.make is not None:
            return self.make(rng, self.types)
        return [
            rng.integers(-self.bounds[k], self.bounds[k], t.shape) if k in self.bounds else sample(rng, t, domain(self.op, k))
            for k, t in enumerate(self.types)
        ]

    def emit(self, b: Builder, operands: Sequence[Value]) -> tuple[Value, ...]:
        """The op's results."""
        return b.emit(self.op, operands, self.params) if self.build is None else self.build(b, operands, self.params)

    def results(self) -> list[ArrayType]:
        """The types of the results."""
        return [v.type for v in self.emit(Builder(), [Value(t) for t in self.types])]


def _square(b: Any, x: Value) -> Value:
    result: Value = b.mul(x, x)
    return result


FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "pow_slope_at": (2, lambda b, x, y: b.pow_slope_at(b.mul(y, b.pow(x, b.sub(y, b.full(1, y.type)))), x, y)),
    "over_hypot": (2, lambda b, x, y: b.over_hypot(x, y, b.hypot(x, y))),
    "over_squares_at": (2, lambda b, x, y: b.over_squares_at(b.div(x, b.add(_square(b, x), _square(b, y))), x, y)),
    "normal_pdf_at": (1, lambda b, x: b.normal_pdf_at(b.normal_pdf(x), x)),
    "exp_square_at": (1, lambda b, x: b.exp_square_at(b.exp(_square(b, x)), x)),
    "inverse_mills_at": (1, lambda b, x: b.inverse_mills_at(b.inverse_mills(x), x)),
}
"""Ops of which an operand is a function of the others: how many those are, and what is emitted of them."""


def of_function(case: Case) -> Case:
    """The case with operands that belong together, if the op has such."""
    if case.op.name not in FUNCTIONS:
        return case
    count, function = FUNCTIONS[case.op.name]
    return replace(case, types=case.types[:count], build=lambda b, operands, params: (function(b, *operands),))


def domain(op: Op, position: int) -> tuple[float, float]:
    """The interval from which operands are drawn."""
    ranges = DOMAINS.get(op.name, DEFAULT)
    return ranges[min(position, len(ranges) - 1)]


def sample(rng: np.random.Generator, t: ArrayType, interval: tuple[float, float] = (-2.0, 2.0)) -> Any:
    """A random array: floats in the interval, integers of both signs near it, bools."""
    low, high = interval
    dtype = t.dtype.numpy
    match t.dtype.kind:
        case "b":
            return rng.random(t.shape) < 0.5
        case "i" | "u":
            least = 0 if t.dtype.kind == "u" or interval in (DOMAINS["shl"][0],) else -5
            return rng.integers(least, 6, t.shape).astype(dtype)
        case "c":
            return (rng.uniform(low, high, t.shape) + 1j * rng.uniform(low, high, t.shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, t.shape)).astype(dtype)


SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-310, 1.7976931348623157e308)


def specials(dtype: DType) -> Any:
    """The values at which functions of a dtype go wrong, as a vector."""
    match dtype.kind:
        case "b":
            return np.array([False, True])
        case "f":
            with np.errstate(all="ignore"):
                edge = [-np.pi, 3.0, 1e30, 2.0**31, 2.0**63, -(2.0**63), 255.5, -0.5]
                return np.array([*SPECIAL_FLOATS, *edge]).astype(dtype.numpy)
        case "c":
            return np.array([0, 1, -1, 1j, complex(-0.0, 0.0), complex(np.inf, 1), complex(np.nan, 0)], dtype.numpy)
    info = np.iinfo(dtype.numpy)
    values = [0, 1, 2, 3, info.min, info.max, info.max - 1, info.bits - 1, info.bits]
    return np.array(values + ([-1, -2, -3, info.min + 1] if info.min else []), dtype.numpy)


def special_arguments(case: Case) -> list[Any]:
    """All combinations of special values (for three operands, a sample of them), as vectors."""
    columns = [specials(t.dtype) for t in case.types]
    if case.op.name in ENDLESS:
        columns = [c[~(np.abs(c) > 1e3)] for c in columns]
    grid = [g.ravel() for g in np.meshgrid(*columns, indexing="ij")]
    keep = np.random.default_rng(0).permutation(grid[0].size)[:2000]
    return [g[np.sort(keep)] for g in grid]


def covered_ops() -> list[Op]:
    """The ops that have a meaning on arrays or scalars by themselves: neither regions nor memory."""
    moving = (Reindex, Interleave, Gather, Scatter, Place)
    solving = (Fourier, Linalg, Sort, Composed)
    families = (Elementwise, Reduce, *moving, Contract, LinearRecurrence, Accumulate, *solving, Constant, Count, Iota)
    return [op for op in OPS.values() if isinstance(op, families)]


def cases(op: Op) -> list[Case]:
    """Cases of an op over kinds of elements and shapes, sizes 0 and 1 and rank 0 included."""
    return list(_cases(op))


def _cases(op: Op) -> Iterator[Case]:
    match op:
        case Elementwise():
            for name in (n for kind in op.kinds for n in BY_KIND[kind]):
                yield from _elementwise(op, DTYPES[name])
        case Reduce():
            for name in (n for kind in op.kinds for n in BY_KIND[kind]):
                for shape in ((3,), (2, 3), (2, 3, 2), (0,), (2, 0), (0, 2), (1, 2)):
                    yield from _reductions(op, ArrayType(DTYPES[name], shape))
        case Constant():
            for name, value in (("f64", -0.0), ("f32", float("nan")), ("i8", -3), ("bool", True)):
                yield Case(op=op, types=(), params={"value": value, "dtype": DTYPES[name]})
        case Count():
            for shape in ((), (3,), (2, 0), (2, 3)):
                yield Case(op=op, types=(), params={"shape": shape})
            yield Case(op=op, types=(ArrayType(DTYPES["f64"], (2, 3, 4)),), params={"axes": (0, 2), "shape": (2, 4)})
        case Linalg() | Sort() | Composed():
            yield from LINEAR_ALGEBRA[op.name](op)
        case Iota():
            for shape in ((3,), (2, 0), (2, 3)):
                yield Case(op=op, types=(), params={"axis": len(shape) - 1, "shape": shape, "dtype": I64})
        case _:
            for name in ("f64", "f32", "i64", "c128", "c64"):
                for types, params, bounds in BY_FAMILY.get(type(op), PARAMS.get(op.name, _nothing))(DTYPES[name]):
                    yield Case(op=op, types=types, params=params, bounds=bounds)


def _elementwise(op: Elementwise, dtype: DType) -> Iterator[Case]:
    shapes = SHAPES if dtype.name in ("f64", "i64") else SHAPES[1:2]
    for shape in shapes:
        t = ArrayType(dtype, shape)
        types = (ArrayType(DTYPES["bool"], shape), t, t) if op.gives == "select" else (t,) * op.arity
        for params in elementwise_params(op, dtype):
            yield Case(op=op, types=types, params=params)


def elementwise_params(op: Elementwise, dtype: DType) -> list[dict[str, Any]]:
    """The params with which an elementwise op is tried."""
    if op.name == "bitcast":
        return [{"dtype": d} for d in DTYPES.values() if d.bits == dtype.bits and d.kind in "ifu" and d.kind != dtype.kind != "b"]
    if op.name == "lookup":
        of = DTYPES[f"f{dtype.bits}"] if dtype.bits in (32, 64) else DTYPES["f64"]
        values = tuple(0.25 * (k - 3) ** 3 for k in range(32))
        return [{"values": values[:count], "dtype": of} for count in (1, 2, 8, 16, 32)]
    if op.gives == "dtype":
        names = "f64 f32 i8 bool c64 c128" if dtype.kind == "c" else "f64 f32 f16 i64 i8 u8 bool c64 c128"
        return [{"dtype": DTYPES[n]} for n in names.split()]
    fixed: dict[str, list[dict[str, Any]]] = {
        "polygamma": [{"n": 1}, {"n": 2}],
        "philox": [{"word": 0}, {"word": 3}],
        "expn": [{"n": 0}, {"n": 3}],
        "sqrt": [{}, {"norm": True}],
    }
    return fixed.get(op.name, [{}])


def _reductions(op: Reduce, t: ArrayType) -> Iterator[Case]:
    rank = t.rank
    choices: Sequence[tuple[int, ...]] = [(k,) for k in range(rank)] + ([] if op.gives_position else [(), tuple(range(rank))])
    for axes in choices:
        has_no_identity = op.gives_position or (t.dtype.is_complex and op.name in ("max", "min"))
        if not (has_no_identity and 0 in (t.shape[a] for a in axes)):
            yield Case(op=op, types=(t,), params={"axes": axes})


Made = tuple[tuple[ArrayType, ...], dict[str, Any], dict[int, int]]


def _arrays(dtype: DType, *shapes: tuple[int, ...]) -> tuple[ArrayType, ...]:
    return tuple(ArrayType(dtype, s) for s in shapes)


def _unary(*entries: tuple[tuple[int, ...], dict[str, Any]]) -> Any:
    return lambda dtype: [(_arrays(dtype, shape), params, {}) for shape, params in entries]


def _contractions(dtype: DType) -> list[Made]:
    built: list[Made] = []
    extents = {"i": 2, "j": 3, "k": 2, "z": 0, "o": 1}
    words = "ij,jk->ik ij,kj->ik ij,j->i i,i-> i,j->ij bij,bjk->bik ij,ij->ij z,z-> iz,zk->ik oj,jo-> ij,ij->j ,ij->ji"
    for word in words.split():
        left, right = word.split("->")[0].split(",")
        shapes = [tuple(extents.get(c, 2) for c in w) for w in (left, right)]
        built.append((_arrays(dtype, *shapes), {"spec": word}, {}))
    return built


def _indexed(family: type[Op]) -> Any:
    places = (((3,), (0,), (4,)), ((3, 2), (0,), (2, 2)), ((2, 3), (1,), ()), ((2, 3, 2), (0, 2), (3,)), ((3, 2), (0,), (0,)))

    def make(dtype: DType) -> list[Made]:
        built: list[Made] = []
        for shape, axes, index in places:
            x = ArrayType(dtype, shape)
            indices = tuple(ArrayType(I64, index) for _ in axes)
            values = ArrayType(dtype, index + tuple(e for k, e in enumerate(shape) if k not in axes))
            types = (x, *indices) if family is Gather else (x, *indices, values)
            built.append((types, {"axes": axes}, {k + 1: min(shape[a] for a in axes) for k in range(len(axes))}))
        return built

    return make


def _indexed_parts(dtype: DType) -> list[Made]:
    """Cases of (base, axes, indices, values, start, step)."""
    entries: tuple[tuple[Any, ...], ...] = (
        ((4, 5), (0,), (), (3,), (None, 1), (1, 1)),
        ((4, 5), (1,), (2,), (2, 2), (1, None), (2, 1)),
        ((3, 4, 2), (1,), (2,), (2, 1, 2), (2, None, None), (1, 1, 1)),
        ((3, 4, 6), (0, 2), (3,), (3, 2), (None, 1, None), (1, 2, 1)),
        ((3, 4), (0,), (2, 2), (2, 2, 0), (None, 1), (1, 1)),
    )
    built: list[Made] = []
    for base, axes, index, values, start, step in entries:
        types = (*_arrays(dtype, base), *[ArrayType(I64, index)] * len(axes), *_arrays(dtype, values))
        bounds = {k + 1: min(base[a] for a in axes) for k in range(len(axes))}
        built.append((types, {"axes": axes, "start": start, "step": step}, bounds))
    return built


def _placed(dtype: DType) -> list[Made]:
    entries = (
        ((4,), (2,), (1,), (1,)),
        ((5, 2), (2, 2), (0, 0), (2, 1)),
        ((3,), (3,), (0,), (1,)),
        ((3,), (0,), (1,), (1,)),
        ((), (), (), ()),
    )
    return [(_arrays(dtype, base, value), {"start": start, "step": step}, {}) for base, value, start, step in entries]


def _transforms(name: str) -> Any:
    def make(dtype: DType) -> list[Made]:
        built: list[Made] = []
        if dtype.is_float if name == "rfft" else dtype.is_complex:
            for shape, axis in (((4,), 0), ((1,), 0), ((2, 5), 1), ((3, 2), 0), ((2, 4, 3), 1), ((0, 3), 1), ((3, 0), 0)):
                halved = [*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 :]]
                x, out = (shape, tuple(halved)) if name == "rfft" else (tuple(halved), shape)
                params: dict[str, Any] = {"axis": axis}
                if name in ("rfft", "irfft"):
                    params |= {"odd": shape[axis] % 2 == 1, "shape": out}
                built.append((_arrays(dtype, x), params, {}))
        return built

    return make


def _accumulations(dtype: DType) -> list[Made]:
    shapes = (((4,), 0), ((37,), 0), ((2, 19), 1), ((3, 2), 0), ((2, 5, 3), 1), ((0,), 0), ((2, 0), 0), ((1,), 0))
    return [
        (_arrays(dtype, shape), {"axis": axis, "reverse": reverse}, {}) for shape, axis in shapes for reverse in (False, True)
    ]


def _recurrences(dtype: DType) -> list[Made]:
    shapes = (((4,), 0), ((2, 3), 1), ((3, 2), 0), ((0,), 0))
    return [
        (_arrays(dtype, shape, shape), {"axis": axis, "reverse": reverse}, {})
        for shape, axis in shapes
        for reverse in (False, True)
    ]


# linear algebra

BATCHES: tuple[tuple[int, ...], ...] = ((3,), (2, 3), (1,), (0,), (2, 0), (0, 2), (2, 1, 2))


def _matrices(name: str = "f64") -> list[ArrayType]:
    return [ArrayType(DTYPES[name], (*batch, batch[-1])) for batch in BATCHES]


def _regular(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    """Matrices far from singular ones, the first; the others are anything."""
    first, *rest = types
    a = sample(rng, first) + 4 * rng.permutation(np.eye(first.shape[-1])).astype(first.dtype.numpy)
    return [a, *(sample(rng, t) for t in rest)]


def _positive(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    a = sample(rng, types[0])
    return [(a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1])).astype(a.dtype)]


def _of_symmetric(op: Op) -> Callable[..., tuple[Value, ...]]:
    """Ops that read one triangle are differentiated through the symmetric part."""

    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        (x,) = operands
        return b.emit(op, (b.mul(b.add(x, transpose(b, x)), b.full(0.5, x.type)),), params)

    return build


def _choleskys(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_positive, build=_of_symmetric(op))


def _mirrors(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        for lower in (False, True):
            yield Case(op=op, types=(t,), params={"lower": lower}, make=_positive, build=_of_symmetric(op))


def _with_right_side(t: ArrayType, columns: int) -> tuple[ArrayType, ArrayType]:
    return t, t.with_shape((*t.shape[:-1], columns))


def _triangular_solves(op: Op) -> Iterator[Case]:
    flags = [(lower, trans, unit) for lower in (False, True) for trans in (False, True) for unit in (False, True)]
    for lower, trans, unit in flags:
        params = {"lower": lower, "transposed": trans, "unit_diagonal": unit}
        for t, columns in ((ArrayType(DTYPES["f64"], (3, 3)), 3), (ArrayType(DTYPES["f64"], (2, 2, 2)), 1)):
            yield Case(op=op, types=_with_right_side(t, columns), params=params, make=_dominant)
    for t in (*_matrices(), *_matrices("f32")[:2]):
        for columns in (0, 2):
            yield Case(op=op, types=_with_right_side(t, columns), params=params, make=_dominant)


def _dominant(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    first, *rest = types
    a = sample(rng, first) + 4 * np.eye(first.shape[-1], dtype=first.dtype.numpy)
    return [a, *(sample(rng, t) for t in rest)]


def _lus(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), params={"form": "square"}, make=_regular)
    for shape in ((4, 2), (2, 2, 3), (3, 0), (0, 3), (0, 4, 2)):
        form = "wide" if shape[-2] < shape[-1] else "tall"
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params={"form": form}, make=_apart)


def _permutations(op: Op) -> Iterator[Case]:
    for shape in ((5,), (2, 3), (1,), (0,), (3, 0), (0, 3)):
        for inverse in (False, True):
            yield Case(op=op, types=(ArrayType(I64, shape),), params={"inverse": inverse}, make=_pivots)


def _pivots(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    shape = types[0].shape
    return [
        np.array([[rng.integers(i, shape[-1]) for i in range(shape[-1])] for _ in range(math.prod(shape[:-1]))])
        .reshape(shape)
        .astype(np.int64)
    ]


def _solves(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        a, y = operands
        packed, pivots = b.lu(a, form="square")
        return b.emit(op, (a, packed, y, pivots), params)

    for t in (*_matrices(), *_matrices("f32")[:2]):
        for columns, trans in ((t.shape[-1], False), (2, True), (0, False)):
            params = {"transposed": trans}
            yield Case(op=op, types=_with_right_side(t, columns), params=params, make=_regular, build=build)


def _slogdets(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        (a,) = operands
        packed, pivots = b.lu(a, form="square")
        return b.emit(op, (a, packed, pivots), params)

    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_regular, build=build)


def _apart(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    """Return matrices with well separated singular values, and eigenvalues where they are symmetric."""
    *batch, m, n = types[0].shape
    k = min(m, n)
    left, right = (np.linalg.qr(rng.normal(size=(*batch, e, e)))[0] for e in (m, n))
    left = right if m == n else left
    values = np.arange(1, k + 1) * np.where(np.arange(k) % 2, -0.7, 1.0)
    return [((left[..., :k] * values) @ np.swapaxes(right[..., :k], -1, -2)).astype(types[0].dtype.numpy)]


def _without_signs(build: Callable[..., tuple[Value, ...]]) -> Callable[..., tuple[Value, ...]]:
    """Return ``build`` with its vectors squared, since their sign is arbitrary."""

    def squared(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        result = build(b, operands, params)
        rank = operands[0].type.rank
        return tuple(b.mul(v, v) if v.type.rank == rank else v for v in result)

    return squared


def _eighs(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        for lower in (False, True):
            yield Case(op=op, types=(t,), params={"lower": lower}, make=_apart, build=_without_signs(_of_symmetric(op)))


def _spectral(op: Op) -> Iterator[Case]:
    """Yield cases of the cubes of eigenvalues: their sum, or the cube of the matrix."""

    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        (a,) = operands
        whole = b.mul(b.add(a, transpose(b, a)), b.full(0.5, a.type))
        w, v, _ = b.eigh(whole, lower=True)
        square = b.mul(w, w)
        functions = [b.mul(square, w), b.mul(square, b.full(3, w.type)), b.mul(w, b.full(6, w.type))]
        return b.emit(op, (whole, v, w, *functions[: 3 if op.name == "spectral_sum" else 2]), params)

    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_apart, build=build)


RECTANGLES = ((4, 2), (2, 4, 3), (3, 3), (1, 1), (0, 0), (3, 0), (0, 3, 2), (2, 0, 0))


def _form(shape: Sequence[int]) -> str:
    m, n = shape[-2:]
    return "square" if m == n else "wide" if m < n else "tall"


def _svds(op: Op) -> Iterator[Case]:
    build = _without_signs(lambda b, operands, params: b.emit(op, operands, params))
    for name in ("f64", "f32"):
        for *batch, m, n in RECTANGLES:
            for shape in {(*batch, m, n), (*batch, n, m)}:
                params = {"form": _form(shape), "full": False}
                yield Case(op=op, types=(ArrayType(DTYPES[name], shape),), params=params, make=_apart, build=build)
    for shape in ((3, 2), (2, 2, 3), (3, 3)):
        params = {"form": _form(shape), "full": True}
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params=params, make=_apart, build=build)


def _pinvs(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        (a,) = operands
        u, s, vt, _ = b.svd(a, full=False, form=params["form"])
        large = b.gt(s, b.full(1.5 if params["has_cutoff"] else 0, s.type))
        inverse = b.select(large, b.div(b.full(1, s.type), s), b.zeros_like(s))
        return b.emit(op, (a, u, s, vt, inverse), params)

    for shape in ((4, 3), (2, 3, 4), (3, 3), (1, 1), (0, 0), (3, 0)):
        for cut in (True, False):
            params = {"form": _form(shape), "has_cutoff": cut}
            yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params=params, make=_apart, build=build)


def _expms(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_regular)


def _unitaries(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        (a,) = operands
        u, s, vt, _ = b.svd(a, full=False, **params)
        return b.emit(op, (a, u, s, vt), params)

    for shape in ((4, 3), (2, 2, 3), (3, 3), (1, 1), (0, 0)):
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params={"form": _form(shape)}, make=_apart, build=build)


def _reflections(op: Op) -> Iterator[Case]:
    for shape in (*RECTANGLES, (2, 4), (0, 3)):
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params={"form": _form(shape)}, make=_apart)


def _eigs(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        values, vectors, info = b.emit(op, operands, params)
        return b.real(values), b.abs(values), b.abs(vectors), info

    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_regular, build=build)


def _roots(op: Op) -> Iterator[Case]:
    def make(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
        return [sample(rng, types[0]) + 4 * np.eye(types[0].shape[-1])]

    for t in _matrices():
        yield Case(op=op, types=(t,), make=make)


def _qrs(op: Op) -> Iterator[Case]:
    for name in ("f64", "f32"):
        for shape in RECTANGLES:
            for full in (False, True) if shape[-1] == shape[-2] else (False,):
                yield Case(op=op, types=(ArrayType(DTYPES[name], shape),), params={"full": full}, make=_apart)


def _of_squares(op: Op) -> Iterator[Case]:
    for t in (*_matrices(), *_matrices("f32")[:2]):
        yield Case(op=op, types=(t,), make=_apart)


def _of_rectangles(op: Op) -> Iterator[Case]:
    for shape in RECTANGLES:
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), make=_apart)


def _equation(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    """Return operands whose matrices on both sides have no eigenvalues with a sum close to 0."""
    c, *sides = types
    return [sample(rng, c), *(sample(rng, t) + 3 * np.eye(t.shape[-1]) for t in sides)]


def _sylvester_types(shape: Sequence[int]) -> tuple[ArrayType, ...]:
    *batch, m, n = shape
    return tuple(ArrayType(DTYPES["f64"], (*batch, *e)) for e in ((m, n), (m, m), (n, n)))


SYLVESTERS = ((3, 2), (2, 2, 2), (1, 3), (0, 2), (2, 0), (0, 2, 1))


def _sylvesters(op: Op) -> Iterator[Case]:
    def build(b: Builder, operands: Sequence[Value], params: dict[str, Any]) -> tuple[Value, ...]:
        c, left, right = operands
        (ta, za, _), (tb, zb, _) = b.schur(left), b.schur(right)
        return b.emit(op, (c, left, right, ta, tb, za, zb), params)

    for shape in SYLVESTERS:
        for transposed in (False, True):
            params = {"transposed": transposed}
            yield Case(op=op, types=_sylvester_types(shape), params=params, make=_equation, build=build)


def _triangular_sylvesters(op: Op) -> Iterator[Case]:
    def make(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
        c, *sides = _equation(rng, types)
        return [c, *map(np.triu, sides)]

    for shape in SYLVESTERS:
        for adjoint in (False, True):
            yield Case(op=op, types=_sylvester_types(shape), params={"adjoint": adjoint}, make=make)


def _banded_solves(op: Op) -> Iterator[Case]:
    for shape, lower, upper in (
        ((4, 2), 1, 2),
        ((2, 3, 1), 1, 1),
        ((3, 2), 0, 0),
        ((3, 1), 2, 1),
        ((0, 2), 1, 1),
        ((2, 0), 1, 1),
    ):

        def make(rng: np.random.Generator, types: Sequence[ArrayType], upper: int = upper) -> list[Any]:
            x, bands = (sample(rng, t) for t in types)
            bands[..., upper, :] += 3
            return [x, bands]

        bands = (*shape[:-2], lower + upper + 1, shape[-2])
        types = (ArrayType(DTYPES["f64"], shape), ArrayType(DTYPES["f64"], bands))
        yield Case(op=op, types=types, params={"lower": lower, "upper": upper}, make=make)


def _banded_minors(op: Op) -> Iterator[Case]:
    def make(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
        bands = sample(rng, types[0])
        bands[..., :, 0] -= 9 * (rng.random(bands.shape[:-1]) < 0.5)
        return [bands + 9 * np.eye(bands.shape[-2], 1)]

    for shape in ((2, 4), (3, 3, 3), (1, 3)):
        yield Case(op=op, types=(ArrayType(DTYPES["f64"], shape),), params={"lower": shape[-2] - 1}, make=make)


def _distinct(rng: np.random.Generator, types: Sequence[ArrayType]) -> list[Any]:
    (t,) = types
    return [(rng.permutation(math.prod(t.shape)) * 0.7 - 2).reshape(t.shape).astype(t.dtype.numpy)]


def _sorts(op: Op) -> Iterator[Case]:
    for name in ("f64", "f32", "i64", "u8"):
        for shape in ((3,), (2, 5), (2, 0), (0, 2), (1,), (2, 2, 3)):
            yield Case(op=op, types=(ArrayType(DTYPES[name], shape),), make=_distinct if name[0] == "f" else None)


LINEAR_ALGEBRA: dict[str, Callable[[Op], Iterator[Case]]] = {
    "argsort": _sorts, "banded_minors": _banded_minors, "banded_solve": _banded_solves, "cholesky": _choleskys,
    "cofactors": _slogdets,
    "column_pivots": _of_rectangles, "det": _slogdets, "eig": _eigs, "eigh": _eighs, "expm": _expms,
    "hessenberg": _of_squares, "logm": _roots, "lu": _lus, "hermitian_from_triangle": _mirrors,
    "permutation": _permutations, "pinv": _pinvs,
    "qr": _qrs, "reflections": _reflections, "schur": _of_squares, "slogdet": _slogdets, "solve": _solves,
    "sort": _sorts,
    "spectral_map": _spectral, "spectral_sum": _spectral,
    "sqrtm": _roots, "svd": _svds, "sylvester": _sylvesters, "triangular_solve": _triangular_solves,
    "triangular_sylvester": _triangular_sylvesters, "unitary": _unitaries,
}  # fmt: skip


def _nothing(dtype: DType) -> list[Made]:
    return []


PARAMS: dict[str, Any] = {
    "broadcast": _unary(
        ((), {"axes": (0,), "shape": (3,)}), ((3,), {"axes": (0,), "shape": (2, 3)}), ((3,), {"axes": (1,), "shape": (3, 1)}),
        ((2,), {"axes": (0, 2), "shape": (0, 2, 3)}), ((2,), {"axes": (), "shape": (2,)}),
    ),
    "squeeze": _unary(((1,), {"axes": (0,)}), ((1, 3, 1), {"axes": (0, 2)}), ((2, 1), {"axes": ()})),
    "transpose": _unary(
        ((2, 3), {"perm": (1, 0)}), ((2, 3, 1), {"perm": (2, 0, 1)}), ((), {"perm": ()}), ((0, 2), {"perm": (1, 0)}),
    ),
    "reshape": _unary(
        ((2, 3), {"shape": (3, 2)}), ((6,), {"shape": (2, 3)}), ((1,), {"shape": ()}), ((0, 2), {"shape": (0,)}),
        ((), {"shape": (1, 1)}),
    ),
    "slice": _unary(
        ((5,), {"start": (1,), "step": (2,), "shape": (2,)}), ((3, 4), {"start": (0, 1), "step": (1, 1), "shape": (3, 2)}),
        ((3,), {"start": (1,), "step": (1,), "shape": (0,)}), ((), {"start": (), "step": (), "shape": ()}),
    ),
    "pad": _unary(
        ((2,), {"start": (1,), "step": (2,), "shape": (5,)}), ((3, 2), {"start": (0, 1), "step": (1, 1), "shape": (3, 4)}),
        ((0,), {"start": (1,), "step": (1,), "shape": (3,)}),
    ),
    "flip": _unary(((3,), {"axes": (0,)}), ((2, 3), {"axes": (0, 1)}), ((0, 2), {"axes": (1,)})),
    "shift": _unary(
        ((4,), {"axis": 0, "offset": 1}), ((2, 3), {"axis": 1, "offset": -2}), ((2,), {"axis": 0, "offset": 5}),
        ((0,), {"axis": 0, "offset": 1}),
    ),
    "roll": _unary(
        ((5,), {"axes": (0,), "offset": (1,), "backward": False}), ((2, 3), {"axes": (1,), "offset": (1,), "backward": True}),
        ((4, 2), {"axes": (0,), "offset": (2,), "backward": False}), ((0,), {"axes": (0,), "offset": (0,), "backward": False}),
        ((2, 2, 3, 2), {"axes": (0, 1, 2), "offset": (1,), "backward": True}),
        ((2, 3), {"axes": (0, 1), "offset": (1,), "backward": False}),
    ),
    "roll_by": lambda dtype: [
        ((ArrayType(dtype, shape), ArrayType(I64)), {"axes": axes, "backward": backward}, {1: shape[axes[-1]]})
        for shape, axes, backward in (((5,), (0,), False), ((2, 3), (1,), True), ((4, 2), (0,), False), ((2, 3), (0, 1), True))
    ],
    "windows": _unary(
        ((5,), {"axis": 0, "shape": (3, 3)}), ((2, 4, 3), {"axis": 1, "shape": (2, 3, 2, 3)}),
        ((3,), {"axis": 0, "shape": (1, 3)}),
        ((0, 3), {"axis": 1, "shape": (0, 2, 2)}), ((2,), {"axis": 0, "shape": (3, 0)}), ((20,), {"axis": 0, "shape": (3, 18)}),
    ),
    **{name: _transforms(name) for name in ("fft", "ifft", "rfft", "irfft")},
    "component": lambda dtype: [
        (_arrays(dtype, shape), {"index": index}, {}) for shape, index in (((3, 2), 1), ((2, 0, 2), 0)) if dtype.is_float
    ],
    "view_as_real": lambda dtype: [(_arrays(dtype, shape), {}, {}) for shape in ((3,), ()) if dtype.is_complex],
    "view_as_complex": lambda dtype: [(_arrays(dtype, shape), {}, {}) for shape in ((3, 2), (2,)) if dtype.is_float],
    "interleave": lambda dtype: [
        (_arrays(dtype, *[shape] * number), {}, {})
        for shape, number in (((3,), 2), ((2, 0), 3), ((), 2), ((4, 5), 5))
        if not dtype.is_complex
    ],
    "concat": lambda dtype: [
        (_arrays(dtype, (2,), (3,)), {"axis": 0, "starts": (0, 2), "shape": (5,)}, {}),
        (_arrays(dtype, (2, 1), (2, 0), (2, 2)), {"axis": 1, "starts": (0, 1, 1), "shape": (2, 3)}, {}),
        (_arrays(dtype, (2,)), {"axis": 0, "starts": (0,), "shape": (2,)}, {}),
    ],
}  # fmt: skip
BY_FAMILY: dict[type[Op], Any] = {
    Contract: _contractions, Gather: _indexed(Gather), Scatter: _indexed(Scatter), ScatterPart: _indexed_parts, Place: _placed,
    LinearRecurrence: _recurrences, Accumulate: _accumulations,
}  # fmt: skip


def case_function(case: Case) -> Function:
    """A function of one instruction."""
    b = Builder()
    parameters = [Value(t, f"x{k}") for k, t in enumerate(case.types)]
    return b.function("f", parameters, case.emit(b, parameters))
