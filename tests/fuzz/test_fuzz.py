"""Random programs agree on every target, and so do gradients of random losses.

A program is grown instruction by instruction and evaluated as it grows. A value is exact if every target must give the same
bits, and rough if it went through a float sum or an elementary function. Ops that jump read exact values only, and rough values
stay finite and moderate, so that a difference of a few units in the last place stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.codegen.cpu.llvm.kernel import Emitted, emit
from pullback.codegen.targets import Target
from pullback.ir import DTYPES, OPS, ArrayType, Builder, Function, Loc, Op, Value
from pullback.ir.core.structure import walk
from pullback.ir.core.types import F64, I64
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.text import print_function
from tests.support.op_cases import ENDLESS, covered_ops, elementwise_params, specials
from tests.support.targets import assert_close, run_targets

Pick = Callable[[int], int]

EXTENTS = (2, 3, 5, 17, 1, 0)
KINDS = ("f64", "f64", "f32", "i64", "u8", "bool", "i32", "f16", "c128", "c64")
SMOOTH = [
    "add",
    "sub",
    "mul",
    "neg",
    "sin",
    "cos",
    "tanh",
    "expit",
    "erf",
    "atan",
    "asinh",
    "exp",
    "logaddexp",
    "abs",
    "maximum",
    "minimum",
    "select",
    "fmax",
    "fmin",
    "clip",
    "cast",
    "fma",
    "real",
    "imag",
    "conj",
    "complex",
]
EXACT = ("add", "sub", "neg", "conj", "real", "imag", "complex", "select", "cast", "eq", "ne", "lt", "le", "gt", "ge")
"""Ops that change the parts of complex numbers without rounding."""
CUT = ("maximum", "minimum", "fmax", "fmin", "max", "min", "atan", "asinh", "tanh", "argmax", "argmin")
"""Ops that are not continuous on complex numbers: they order them, or have a cut or a pole."""
KINKED = ("abs", "maximum", "minimum", "fmax", "fmin", "clip")
MOVES = [
    "broadcast",
    "squeeze",
    "transpose",
    "reshape",
    "slice",
    "pad",
    "flip",
    "shift",
    "roll",
    "concat",
    "gather",
    "slice_add",
    "slice_set",
    "scatter_add",
    "contract",
    "linear_recurrence",
    "cumsum",
]
MOST_ELEMENTS = 600
MODERATE = 50.0


class Program:
    """A function in the making: its builder, and for each value its number and whether it is rough."""

    def __init__(self, pick: Pick, dtypes: Sequence[str] = KINDS, is_smooth: bool = False) -> None:
        self.pick, self.is_smooth = pick, is_smooth
        self.rng = np.random.default_rng(pick(1 << 16))
        self.b = Builder(Loc("program.py", 1))
        self.number: dict[Value, Any] = {}
        self.rough: set[Value] = set()
        self.known = 0
        self.extents = [EXTENTS[pick(len(EXTENTS))] for _ in range(2)] + [3]
        kinds = [dtypes[pick(len(dtypes))] for _ in range(2)]
        self.parameters = [self.parameter(k, kinds[k % 2]) for k in range(1 + pick(4))]

    def parameter(self, position: int, kind: str) -> Value:
        dtype = DTYPES[kind]
        shape = tuple(self.extents[self.pick(3)] for _ in range(self.pick(4)))
        while np.prod(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        value = Value(ArrayType(dtype, shape), f"x{position}")
        array = np.asarray(np.round(self.rng.uniform(-4, 5, shape), 2)).astype(dtype.numpy)
        if dtype.is_complex:
            array = array + np.asarray(1j * np.round(self.rng.uniform(-4, 5, shape), 2)).astype(dtype.numpy)
        if not self.is_smooth and self.pick(4) == 3:
            array = np.resize(self.rng.permutation(specials(dtype)), shape).astype(dtype.numpy)
        self.number[value] = rearranged(array, self.pick(9)) if array.ndim else array
        return value

    @property
    def values(self) -> list[Value]:
        return list(self.number)

    @property
    def arguments(self) -> list[Any]:
        return [self.number[v] for v in self.parameters]

    def like(self, t: ArrayType) -> Value:
        """A value of a type: one there is, or a constant."""
        result = [v for v in self.values if v.type == t]
        if result and self.pick(5):
            return result[-1 - self.pick(len(result))]
        choices = [0, 1, 2, 3] if t.dtype.kind in "biu" else [0, -0.0, 1, -1, 0.5, 3, -2.25]
        return self.full(choices[self.pick(len(choices))] % 2 if t.dtype.is_bool else choices[self.pick(4)], t)

    def full(self, count: Any, t: ArrayType) -> Value:
        value: Value = self.b.full(count, t)
        self.evaluate()
        return value

    def evaluate(self) -> None:
        """Give new instructions their numbers; drop them if a rough result is not moderate."""
        built: dict[Value, Any] = {}
        first, self.known = self.known, len(self.b.instructions)
        rough = set()
        for i in self.b.instructions[first:]:
            operands = [built[v] if v in built else self.number[v] for v in i.operands]
            numbers = i.op.evaluate(operands, i.params, [v.type for v in i.results])
            is_rough = any(v in self.rough or v in rough for v in i.operands) or _rounds(i.op, i.operands)
            for value, count in zip(i.results, numbers, strict=True):
                built[value] = np.asarray(count)
                if is_rough and value.type.dtype.is_inexact:
                    rough.add(value)
                    with np.errstate(all="ignore"):
                        if not (np.abs(_wide(built[value])) <= MODERATE).all():
                            del self.b.instructions[first:]
                            self.known = first
                            return
        self.number.update(built)
        self.rough |= rough

    def grow(self, ops: Sequence[Op], count: int) -> None:
        """Add random ops until there are ``count`` instructions, or 3 ``count`` attempts were made."""
        for line in range(3 * count):
            if len(self.b.instructions) >= count:
                return
            self.step(ops, line + 2)

    def results(self) -> list[Value]:
        """Return the last values without uses, so that they are not dead, and a few other values."""
        read = {v for i in self.b.instructions for v in i.operands}
        last = [v for v in self.values if v not in read][-12:]
        return last + [self.values[self.pick(len(self.number))] for _ in range(self.pick(3))]

    def step(self, ops: Sequence[Op], line: int) -> None:
        """Add one more use of an op, if it fits."""
        op = ops[self.pick(len(ops))]
        values = self.values
        x = values[-1 - self.pick(min(len(values), 8 if self.pick(3) else 100))]
        b = self.b.at(Loc("program.py", line))
        if isinstance(op, Elementwise):
            self.elementwise(b, op, x)
        elif isinstance(op, Reduce):
            self.reduction(b, op, x)
        else:
            self.move(b, op.name, x)
        self.evaluate()

    def elementwise(self, b: Builder, op: Elementwise, x: Value) -> None:
        t: Any = x.type
        if t.dtype.kind not in op.kinds:
            return
        operands = [x] + [self.like(t) for _ in range(op.arity - 1)]
        if t.dtype.is_complex and op.name in CUT and any(v in self.rough for v in operands):
            return
        if op.gives == "complex" and t.dtype.name not in ("f32", "f64"):
            return
        if op.gives == "select":
            operands[0] = self.like(t.with_dtype(DTYPES["bool"]))
        if op.name in KINKED and self.is_smooth and any(v in self.rough for v in operands):
            return
        params = elementwise_params(op, t.dtype)
        if not params or (op.name not in SMOOTH and any(v in self.rough for v in operands)):
            return
        chosen = params[self.pick(len(params))]
        to = chosen.get("dtype")
        if to is not None and not to.is_inexact and x in self.rough:
            return
        b.emit(op, operands, chosen)

    def reduction(self, b: Builder, op: Reduce, x: Value) -> None:
        t: Any = x.type
        axes = self.some_axes(t.rank)
        if t.dtype.kind not in op.kinds or (t.dtype.is_inexact and not np.isfinite(_wide(self.number[x])).all()):
            return
        if t.dtype.is_complex and op.name in CUT and (x in self.rough or 0 in t.shape):
            return
        if op.gives_position:
            if t.rank and x not in self.rough:
                axis = self.pick(t.rank)
                if t.shape[axis]:
                    b.emit(op, (x,), {"axes": (axis,)})
            return
        if self.is_smooth and op.name in ("max", "min") and x in self.rough:
            return
        (result,) = b.emit(op, (x,), {"axes": axes})
        if axes and self.pick(2):
            self.spread_back(b, result, x, axes)

    def spread_back(self, b: Builder, result: Value, x: Value, axes: tuple[int, ...]) -> None:
        """Combine elements with a reduction of their row or column, as a softmax does."""
        self.evaluate()
        if result not in self.number:
            return
        spread = b.broadcast(result, axes=axes, shape=x.type.shape)
        ops = ("mul", "maximum") if x.type.dtype.is_bool else ("sub", "mul", "add", "maximum")
        if x.type.dtype.is_float and result in self.rough:
            ops = ops[:3]
        getattr(b, ops[self.pick(len(ops))])(x, spread)

    def some_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(k for k in range(rank) if self.pick(2))

    def move(self, b: Builder, name: str, x: Value) -> None:
        t: Any = x.type
        match name:
            case "broadcast" if t.rank < 3:
                axis, extent = self.pick(t.rank + 1), self.extents[self.pick(3)]
                if np.prod(t.shape) * extent <= MOST_ELEMENTS:
                    b.broadcast(x, axes=(axis,), shape=(*t.shape[:axis], extent, *t.shape[axis:]))
            case "squeeze":
                b.squeeze(x, axes=tuple(k for k in range(t.rank) if t.shape[k] == 1 and self.pick(2)))
            case "transpose":
                b.transpose(x, perm=tuple(int(k) for k in self.rng.permutation(t.rank)))
            case "reshape":
                count = int(np.prod(t.shape))
                shapes = [(count,), tuple(reversed(t.shape)), (count, 1)]
                shapes += [(k, count // k) for k in (2, 3, 5, 17) if count % k == 0 and count]
                b.reshape(x, shape=shapes[self.pick(len(shapes))])
            case "flip":
                b.flip(x, axes=self.some_axes(t.rank))
            case "shift" if t.rank:
                b.shift(x, axis=self.pick(t.rank), offset=(1, -1, 2, -7)[self.pick(4)])
            case "roll" if t.rank:
                axes = tuple(range(self.pick(t.rank), t.rank))
                axes = axes[: 1 + self.pick(len(axes))]
                b.roll(x, axes=axes, offset=(self.pick(t.shape[axes[-1]] // 2 + 1),), backward=bool(self.pick(2)))
            case "slice":
                b.slice(x, **self.place(t.shape), shape=self.part)
            case "pad":
                shape = tuple(e * (1 + self.pick(2)) + self.pick(3) for e in t.shape)
                position = self.place(shape, t.shape)
                if np.prod(shape) <= MOST_ELEMENTS and self.part == t.shape:
                    b.pad(x, **position, shape=shape)
            case "concat" if t.rank:
                self.concat(b, x)
            case "slice_add" | "slice_set":
                position = self.place(t.shape)
                value = self.like(t.with_shape(self.part))
                if t.dtype.kind != "b" or name == "slice_set":
                    getattr(b, name)(x, value, **position)
            case "gather" | "scatter_add" if t.rank:
                self.indexed(b, name, x)
            case "contract" if t.dtype.kind in "ifuc":
                self.contract(b, x)
            case "cumsum" if t.rank and t.dtype.kind in "iuf":
                b.cumsum(x, axis=self.pick(t.rank), reverse=bool(self.pick(2)))
            case "linear_recurrence" if t.rank and t.dtype.kind in "iu":
                b.linear_recurrence(self.like(t), x, axis=self.pick(t.rank), reverse=bool(self.pick(2)))

    def place(self, shape: Sequence[int], part: Sequence[int] | None = None) -> dict[str, Any]:
        """Start and step of a regular part of a shape; its extents are in ``part`` afterwards."""
        start, step, result = [], [], []
        for k, e in enumerate(shape):
            first, stride = self.pick(min(e, 3) + 1), 1 + self.pick(3)
            room = max((e - first + stride - 1) // stride, 0)
            count = room - self.pick(2) if room else 0
            if part is not None:
                count = part[k] if part[k] <= room else -1
            if not self.pick(3) and (part is None or part[k] == e):
                first, stride, count = 0, 1, e
            start.append(first)
            step.append(stride)
            result.append(count)
        self.part = tuple(result)
        return {"start": tuple(start), "step": tuple(step)}

    def concat(self, b: Builder, x: Value) -> None:
        t: Any = x.type
        axis = self.pick(t.rank)
        fits = [v for v in self.values if v.type.dtype is t.dtype and v.type.rank == t.rank]
        fits = [v for v in fits if all(e == f for k, (e, f) in enumerate(zip(v.type.shape, t.shape, strict=True)) if k != axis)]
        parts = [x] + [fits[self.pick(len(fits))] for _ in range(self.pick(3))]
        counts = [int(v.type.shape[axis]) for v in parts]
        starts = tuple(sum(counts[:k]) for k in range(len(counts)))
        shape = (*t.shape[:axis], sum(counts), *t.shape[axis + 1 :])
        if np.prod(shape) <= MOST_ELEMENTS:
            b.concat(*parts, axis=axis, starts=starts, shape=shape)

    def indexed(self, b: Builder, name: str, x: Value) -> None:
        t: Any = x.type
        axis = self.pick(t.rank)
        n = t.shape[axis]
        if not n:
            return
        shape = tuple(EXTENTS[self.pick(4)] for _ in range(self.pick(2)))
        source = self.full(self.pick(n), ArrayType(I64, shape))
        if shape and self.pick(2):
            line = b.iota(shape=shape, axis=0, dtype=I64)
            index = b.mod(b.mul(line, b.full(3, line.type)), b.full(n, line.type))
            source = b.sub(index, b.full(n, line.type)) if self.pick(2) else index
            self.evaluate()
        if name == "gather":
            b.gather(x, source, axes=(axis,))
            return
        rest = tuple(e for k, e in enumerate(t.shape) if k != axis)
        b.scatter_add(x, source, self.like(t.with_shape(shape + rest)), axes=(axis,))

    def contract(self, b: Builder, x: Value) -> None:
        """A sum over some axes of a product with a value of the same type, or a matrix product with its transpose."""
        t: Any = x.type
        if t.rank == 2 and self.pick(2):
            spec = ("ij,kj->ik", "ji,jk->ik", "ij,kj->ki")[self.pick(3)]
            other = self.like(t)
            if max(t.shape, default=0) <= 17:
                b.contract(x, other, spec=spec)
            return
        letters = "ijk"[: t.rank]
        kept = "".join(k for k in letters if self.pick(2))
        b.contract(x, self.like(t), spec=f"{letters},{letters}->{kept}")


def rearranged(x: Any, how: int) -> Any:
    """Return the array in another memory order, or unchanged in most cases."""
    match how:
        case 1:
            return np.asfortranarray(x)
        case 2:
            return np.repeat(x, 2, -1)[..., ::2]
        case 3:
            return np.ascontiguousarray(x[::-1])[::-1]
    return x


def _wide(x: Any) -> Any:
    return x if x.dtype.kind == "c" else x.astype(np.float64)


def _rounds(op: Op, operands: Sequence[Value]) -> bool:
    """Whether targets may round an op's result differently."""
    if not operands or (not operands[0].type.dtype.is_inexact and not operands[-1].type.dtype.is_inexact):
        return False
    if isinstance(op, Elementwise) and operands[-1].type.dtype.is_complex:
        return op.name not in EXACT
    if isinstance(op, Elementwise):
        return not op.cheap and op.name not in ("floordiv", "mod", "fmod")
    return op.name in ("sum", "prod", "contract", "scatter_add", "slice_add", "linear_recurrence", "cumsum")


TABLE = [op for op in covered_ops() if "func" in op.vocabularies and op.name not in ENDLESS]
ANY = [op for op in TABLE if isinstance(op, Elementwise | Reduce) or op.name in MOVES]
ANY += [op for op in ANY if not isinstance(op, Elementwise)] + [op for op in ANY if isinstance(op, Reduce)] * 2
FLOATS = [op for op in ANY if op.name in (*SMOOTH, *MOVES, "sum", "prod", "max", "min")]


def random_program(pick: Pick) -> tuple[Function, list[Any], list[bool]]:
    """A function of 5 to 40 instructions, arguments, and which results are rough."""
    program = Program(pick)
    program.grow(ANY, 5 + pick(36))
    results = program.results()
    function = program.b.function("program", program.parameters, results)
    return function, program.arguments, [v in program.rough for v in results]


def random_gradient(pick: Pick) -> tuple[Function, list[Any]]:
    """The gradient of a random float64 loss, and arguments."""
    program = Program(pick, ("f64", "f64", "c128"), is_smooth=True)
    inside = program.parameters
    program.grow(FLOATS, 5 + pick(25))
    loss = program.b.const(0.0, F64)
    complexes = [program.b.real(v) for v in program.results() if v.type.dtype is DTYPES["c128"]]
    for value in [*(v for v in program.results() if v.type.dtype is F64), *complexes]:
        bounded = program.b.tanh(value)
        loss = program.b.add(loss, program.b.sum(bounded, axes=tuple(range(value.type.rank))))
    region = program.b.block(inside, [loss])
    b = Builder(Loc("program.py", 1))
    parameters = [Value(v.type, v.name) for v in inside]
    results = b.emit(OPS["gradient"], parameters, {"wrt": tuple(range(len(inside)))}, [region])
    return b.function("gradient", parameters, results), program.arguments


Run = Callable[[Function, Sequence[Any]], dict[str, Any]]
"""A function that returns the results by target name, including "interpreter"."""


def check_program(pick: Pick, run: Run = run_targets) -> None:
    function, arguments, rough = random_program(pick)
    compare(function, arguments, rough, run)


def check_gradient(pick: Pick, run: Run = run_targets) -> None:
    function, arguments = random_gradient(pick)
    compare(function, arguments, [True] * len(function.results), run)


RELATIVE = {16: 2.0**-4, 32: 2.0**-11, 64: 2.0**-32}


def compare(function: Function, arguments: list[Any], rough: Sequence[bool], run: Run) -> None:
    """All targets agree; rough results to what the narrowest float of the program allows."""
    floats = {v.type.dtype.part.bits for i in walk(function.body) for v in i.results if v.type.dtype.is_inexact}
    bound = RELATIVE[min(floats, default=64)]
    try:
        targets = dict(run(function, arguments))
        expected = targets.pop("interpreter")
        for target, results in targets.items():
            for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
                is_rough = rough[position] and wanted.dtype.kind in "fc"
                floor = max(1.0, float(np.max(np.abs(np.nan_to_num(wanted)), initial=0))) if is_rough else 0.0
                ulps = bound / float(np.finfo(wanted.dtype).eps) if is_rough else 0
                assert_close(result, wanted, ulps, floor, note=f"result {position} on {target}")
    except Exception as error:
        error.add_note(print_function(function))
        error.add_note(f"arguments: {arguments!r}")
        raise


def picker(*seed: int) -> Pick:
    """Choices from NumPy's generator."""
    rng = np.random.default_rng(seed)
    return lambda n: int(rng.integers(n))


def budget(examples: int) -> Any:
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )


@budget(50)
@given(st.data())
def test_programs(data: Any) -> None:
    check_program(lambda n: data.draw(st.integers(0, n - 1)))


@budget(14)
@given(st.data())
def test_gradients(data: Any) -> None:
    check_gradient(lambda n: data.draw(st.integers(0, n - 1)))


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_narrow_vectors(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for the vectors of older machines, without their fused multiplication, run here too."""

    def narrow(kernel: Function, **ahead: Any) -> Emitted:
        return emit(kernel, "", Target(vector_bytes, has_fma=False), **ahead)

    monkeypatch.setattr("pullback.runtime.program.executable.emit_kernel", narrow)
    monkeypatch.setattr("tests.fuzz.test_fuzz.ANY", [op for op in ANY if op.name != "fma"])
    for seed in range(4):
        check_program(picker(seed))
        if not seed % 3:
            check_gradient(picker(seed))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_program, pytest.param(check_gradient, marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 10))])
def test_many(check: Callable[[Pick], None], seed: int) -> None:
    """More programs, and larger ones than hypothesis makes."""
    for count in range(60 if seed else 18):
        check(picker(seed, count))
