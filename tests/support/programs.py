"""Random functions over the op table, for tests of what must hold for every program."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir import DTYPES, ArrayType, Builder, Function, Loc, Op, Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from tests.support.op_cases import ENDLESS, covered_ops, elementwise_params

SHAPES = ((), (3,), (2, 3), (1, 3), (2, 1, 3))
KINDS = ("f64", "f64", "f32", "i64", "u8", "bool")
BY_SHAPE = ("broadcast", "squeeze", "transpose", "reshape", "flip", "slice", "pad", "concat", "contract", "shift", "roll")

LOOSE = ("contract", "sum", "prod", "copysign", "bitcast")
"""Ops that may add in another order, or that show the sign of a NaN."""


def random_function(seed: int, steps: int = 12, exact: bool = False) -> Function:
    """A function of a few parameters; ``exact`` keeps to ops whose results no rewriting may change by a bit."""
    rng = np.random.default_rng(seed)
    parameters = [Value(_type(rng), f"x{k}") for k in range(rng.integers(1, 4))]
    b = Builder(Loc("program.py", 1))
    values = list(parameters)
    ops = [op for op in covered_ops() if "func" in op.vocabularies and (op.name in BY_SHAPE or _plain(op, exact))]
    ops = [op for op in ops if op.name not in ENDLESS and not (exact and op.name in LOOSE)]
    for line in range(steps):
        op = ops[rng.integers(len(ops))]
        if rng.random() < 0.25:
            values.append(_constant(rng, b, values[rng.integers(len(values))].type))
        values.extend(_apply(rng, b.at(Loc("program.py", line + 2)), op, values))
    results = [values[rng.integers(len(values))] for _ in range(2)] + values[-1:]
    return b.function(f"program{seed}", parameters, results)


def _plain(op: Op, exact: bool) -> bool:
    if isinstance(op, Reduce):
        return not op.gives_position
    return isinstance(op, Elementwise) and (op.cheap or not exact) and op.kinds != "c"


def _type(rng: np.random.Generator) -> ArrayType:
    return ArrayType(DTYPES[KINDS[rng.integers(len(KINDS))]], SHAPES[rng.integers(len(SHAPES))])


def _constant(rng: np.random.Generator, b: Builder, t: Any) -> Value:
    if t.dtype.kind in "bu":
        return b.full(int(rng.integers(0, 2)), t)
    return b.full([0, -0.0, 1, -1, 2, 3, 0.5, -2.5, np.nan, np.inf][rng.integers(10 if t.dtype.is_float else 6)], t)


def _apply(rng: np.random.Generator, b: Builder, op: Op, values: list[Value]) -> list[Value]:
    """One use of the op on some of the values, if one fits."""
    first = values[rng.integers(len(values))]
    t: Any = first.type
    if isinstance(op, Elementwise):
        if t.dtype.kind not in op.kinds or (op.name == "complex" and t.dtype.bits < 32):
            return []
        same = [v for v in values if v.type == t]
        chosen = [first] + [same[rng.integers(len(same))] for _ in range(op.arity - 1)]
        if op.gives == "select":
            conditions = [v for v in values if v.type == ArrayType(DTYPES["bool"], t.shape)]
            if not conditions:
                return []
            chosen[0] = conditions[rng.integers(len(conditions))]
        params = elementwise_params(op, t.dtype)
        return list(b.emit(op, chosen, params[rng.integers(len(params))])) if params else []
    if isinstance(op, Reduce):
        axes = tuple(k for k in range(t.rank) if rng.random() < 0.5)
        return list(b.emit(op, [first], {"axes": axes})) if t.dtype.kind in op.kinds else []
    return _rearranged(rng, b, op.name, first, values)


def _rearranged(rng: np.random.Generator, b: Builder, name: str, x: Value, values: list[Value]) -> list[Value]:
    t: Any = x.type
    some = tuple(k for k in range(t.rank) if rng.random() < 0.5)
    match name:
        case "broadcast" if t.rank < 3:
            axis = int(rng.integers(0, t.rank + 1))
            shape = [*t.shape[:axis], int(rng.integers(1, 4)), *t.shape[axis:]]
            return [b.broadcast(x, axes=(axis,), shape=tuple(shape))]
        case "squeeze":
            return [b.squeeze(x, axes=tuple(k for k in range(t.rank) if t.shape[k] == 1))]
        case "transpose":
            return [b.transpose(x, perm=tuple(int(p) for p in rng.permutation(t.rank)))]
        case "reshape" if t.rank < 5:
            shapes = [(int(np.prod(t.shape)),), tuple(reversed(t.shape)), (1, *t.shape)]
            return [b.reshape(x, shape=shapes[rng.integers(3)])]
        case "flip":
            return [b.flip(x, axes=some)]
        case "slice":
            start = tuple(int(e > 1 and rng.random() < 0.5) for e in t.shape)
            shape = tuple(e - s for e, s in zip(t.shape, start, strict=True))
            return [b.slice(x, start=start, step=(1,) * t.rank, shape=shape)]
        case "pad" if all(e < 4 for e in t.shape):
            start = tuple(int(rng.integers(0, 2)) for _ in t.shape)
            shape = tuple(2 * e + s for e, s in zip(t.shape, start, strict=True))
            return [b.pad(x, start=start, step=(2,) * t.rank, shape=shape)]
        case "shift" if t.rank:
            return [b.shift(x, axis=0, offset=int(rng.integers(-1, 2)))]
        case "roll" if t.rank:
            axis = int(rng.integers(t.rank))
            return [b.roll(x, axes=(axis,), offset=(t.shape[axis] // 2,), backward=bool(rng.integers(2)))]
        case "concat" if t.rank and t.shape[0] < 8:
            return [b.concat(x, x, axis=0, starts=(0, t.shape[0]), shape=(2 * t.shape[0], *t.shape[1:]))]
        case "contract":
            others = [v for v in values if v.type == t and t.dtype.kind in "ifu"]
            letters = "ijklmnop"[: t.rank]
            kept = "".join(letters[k] for k in some)
            return [b.contract(x, others[rng.integers(len(others))], spec=f"{letters},{letters}->{kept}")] if others else []
    return []
