"""Interpreters, one for each vocabulary, all slow and simple. They define the semantics of every stage and are the oracle of
tests.

A func runs on NumPy arrays and returns NumPy arrays. A kernel runs on NumPy arrays (its references) and scalars, with its
sizes by name, and returns its status. A program runs on NumPy arrays and scalars and returns arrays; its kernels are looked up
in the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.core.types import ArrayType, DType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.ops.control.custom import Custom
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.loops import Scan, Switch, While
from pullback.ir.ops.control.regions import CheckFailed, Group
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall, ColdFunction
from pullback.ir.ops.kernel.functions import Call, CallIndirect, FunctionAddress, FunctionDefinition, RefAt, TableEntry
from pullback.ir.ops.kernel.kernel import (
    AtomicAdd,
    Extent,
    Fail,
    FlatView,
    For,
    If,
    Load,
    Local,
    Prefetch,
    Private,
    RowView,
    SelectRef,
    SelectRows,
    StageRows,
    Store,
    Stride,
    StridedOrCopy,
    Subview,
    Threads,
    Tuned,
    combined_values,
)
from pullback.ir.ops.kernel.matmul import COLUMNS, ROWS, Product
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.program import (
    Alloc,
    BindExtent,
    Branch,
    Copy,
    Free,
    Launch,
    Push,
    Repeat,
    RepeatWhile,
    Row,
    Stack,
    StoreStackLength,
    View,
)
from pullback.ir.shapes.extents import factor_names, value_of

Env = dict[Value, Any]
Sizes = dict[str, int]
Observer = Callable[[Instruction, Sequence[Any], Sequence[Any]], Sequence[Any] | None]
"""Called with each executed instruction, its operands and its results; may return other results to use instead."""

THREADS = 2
"""Number of threads that an interpreted kernel sees."""


def interpret(
    function: Function, *arguments: Any, module: Module | None = None, sizes: Mapping[str, int] | None = None,
    effects: bool = True, observe: Observer | None = None,
) -> Any:  # fmt: skip
    """Run a function. Returns a tuple of results for a func or program, the status for a kernel.

    Sizes in the shapes of parameters are taken from the arguments; others must be in ``sizes``. For a func: without ``effects``
    no host call without results is made, and ``observe(instruction, operands, results)`` is called for each executed
    instruction.
    Raises CheckFailed where a check fails and ValueError on arguments of the wrong type or shape.
    """
    bound: Sizes = dict(sizes or {})
    if len(arguments) != len(function.parameters):
        raise ValueError(f"{function.name} takes {len(function.parameters)} arguments, got {len(arguments)}")
    env: Env = {}
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        array = np.asarray(argument)
        bind(parameter, array, bound)
        env[parameter] = array
    if function.kind == "kernel":
        run = _Kernel(bound)
        with np.errstate(all="ignore"):
            run.block(function.body, env)
        return run.status
    runner = _Arrays(bound, effects, observe) if function.kind == "func" else _Program(bound, module or Module((function,)))
    runner.block(function.body, env)
    return tuple(np.asarray(env[v]) for v in function.results)


def bind(parameter: Value, array: Any, sizes: Sizes) -> None:
    """Match an argument with a parameter's type and bind its named extents in ``sizes``. Raises ValueError."""
    t = parameter.type
    if array.dtype != t.dtype.numpy or array.ndim != t.rank:
        raise ValueError(f"%{parameter.name} is {t}, got an array of {array.dtype} and shape {array.shape}")
    for extent, count in zip(t.shape, array.shape, strict=True):
        if isinstance(extent, str) and factor_names(extent) == [extent]:
            sizes.setdefault(extent, count)
        if value_of(extent, sizes) != count:
            raise ValueError(f"%{parameter.name} is {t}, got shape {array.shape}")


def reinterpreted(array: Any, dtype: DType, shape: Sequence[int]) -> Any:
    """Return a view of an array with another shape, of as many elements, or with complex numbers as pairs of parts or vice
    versa."""
    if array.dtype == dtype.numpy:
        return array.reshape(shape)
    return array[..., None].view(dtype.numpy) if not dtype.is_complex else array.view(dtype.numpy).reshape(shape)


def concrete(params: Mapping[str, Any], names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return params with their extents replaced by ints."""
    return {k: tuple(None if e is None else value_of(e, sizes) for e in v) if k in names else v for k, v in params.items()}


class _Arrays:
    """The interpreter of array functions."""

    def __init__(self, sizes: Sizes, effects: bool, observe: Observer | None) -> None:
        self.sizes = sizes
        self.effects = effects
        self.observe = observe

    def block(self, block: Block, env: Env) -> None:
        for instruction in block.instructions:
            operands = [env[v] for v in instruction.operands]
            results = self.run(instruction, operands)
            if self.observe is not None:
                results = self.observe(instruction, operands, results) or results
            for value, result in zip(instruction.results, results, strict=True):
                env[value] = result

    def run(self, instruction: Instruction, operands: list[Any]) -> Sequence[Any]:
        op = instruction.op
        if isinstance(op, Host) and not instruction.results and not self.effects:
            return []
        if isinstance(op, Group | Custom):
            return self.region(instruction.regions[0], operands)
        if isinstance(op, DefineExtent):
            self.sizes[instruction.params["extent"][0]] = int(operands[0])
        params = concrete(instruction.params, op.extents, self.sizes)
        if isinstance(op, Switch):
            return self.region(instruction.regions[int(operands[0])], operands[1:])
        if isinstance(op, Scan):
            return self.scan(instruction, operands, params)
        if isinstance(op, While):
            return self.repeat(instruction, operands)
        try:
            return op.evaluate(operands, params, [v.type for v in instruction.results])
        except CheckFailed as failed:
            failed.loc, failed.condition = instruction.loc, instruction.operands[0]
            raise

    def region(self, region: Block, operands: Sequence[Any]) -> list[Any]:
        inner: Env = dict(zip(region.parameters, operands, strict=True))
        self.block(region, inner)
        return [inner[v] for v in region.results]

    def scan(self, instruction: Instruction, operands: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
        (region,) = instruction.regions
        count = params["length"][0] if params["length"] else int(operands[0])
        values = operands if params["length"] else operands[1:]
        carried_count, middle = params["carried"], params["carried"] + params["sliced"]
        carried, sequences, captures = list(values[:carried_count]), values[carried_count:middle], values[middle:]
        rows: list[Any] = [None] * count
        order = range(count)
        for k in reversed(order) if params["reverse"] else order:
            slices = [xs[k] for xs in sequences]
            yielded = self.region(region, [np.int64(k), *carried, *slices, *captures])
            carried, rows[k] = yielded[:carried_count], yielded[carried_count:]
        return [*carried, *self.sequences(rows, [v.type for v in region.results[carried_count:]])]

    def repeat(self, instruction: Instruction, operands: Sequence[Any]) -> list[Any]:
        condition, body = instruction.regions
        carried_count = instruction.params["carried"]
        carried, captures = list(operands[:carried_count]), operands[carried_count:]
        rows: list[Any] = []
        while self.region(condition, [np.int64(len(rows)), *carried, *captures])[0]:
            yielded = self.region(body, [np.int64(len(rows)), *carried, *captures])
            carried = yielded[:carried_count]
            rows.append(yielded[carried_count:])
        return [*carried, np.int64(len(rows)), *self.sequences(rows, [v.type for v in body.results[carried_count:]])]

    def sequences(self, rows: Sequence[Sequence[Any]], types: Sequence[Any]) -> list[Any]:
        """Stack the rows that a region yielded, along a leading axis."""
        stacked = []
        for k, t in enumerate(types):
            array = np.empty((len(rows), *(value_of(e, self.sizes) for e in t.shape)), t.dtype.numpy)
            for position, row in enumerate(rows):
                array[position] = row[k]
            stacked.append(array)
        return stacked


class _Kernel:
    """The interpreter of kernels."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.status = 0
        self.functions: dict[str, Block] = {}

    def block(self, block: Block, env: Env) -> None:
        for instruction in block.instructions:
            operands = [env[v] for v in instruction.operands]
            for value, result in zip(instruction.results, self.run(instruction, operands, env), strict=True):
                env[value] = result

    def call(self, region: Block, operands: Sequence[Any], env: Env) -> Sequence[Any]:
        env.update(zip(region.parameters, operands, strict=True))
        self.block(region, env)
        return []

    def run(self, instruction: Instruction, operands: list[Any], env: Env) -> Sequence[Any]:
        params = instruction.params
        match instruction.op:
            case Elementwise() as op:
                value_computed = op.function(*operands, **params)
                dtype = instruction.result.type.dtype.numpy
                return [value_computed if type(value_computed) is dtype.type else np.asarray(value_computed, dtype)[()]]
            case Extent():
                return [np.int64(value_of(params["size"], self.sizes))]
            case Threads():
                return [np.int64(THREADS)]
            case Stride():
                return [np.int64(operands[0].strides[params["axis"]])]
            case Tuned():
                return [np.int64(0)]
            case Load(masked=masked):
                if masked and not operands[1]:
                    return [np.zeros((), operands[0].dtype)[()]]
                return [operands[0][self.index(operands[0], operands[2 if masked else 1 :])]]
            case AtomicAdd():
                index = self.index(operands[1], operands[2:])
                operands[1][index] = np.add(operands[1][index], operands[0], dtype=operands[1].dtype)
                return []
            case Store(masked=masked):
                if not masked or operands[2]:
                    operands[1][self.index(operands[1], operands[3 if masked else 2 :])] = operands[0]
                return []
            case Prefetch():
                return []
            case Subview():
                return [operands[0][int(operands[1]), ...]]
            case StridedOrCopy():
                operands[1][...] = operands[0]
                return [operands[1]]
            case SelectRef():
                return [operands[1] if operands[0] else operands[2]]
            case RowView():
                return [operands[0].T if params["transposed"] else operands[0]]
            case FlatView():
                return [operands[0].reshape(-1, order="F") if operands[0].flags.f_contiguous else operands[0][:0, :0].ravel()]
            case StageRows():
                return [operands[0]]
            case SelectRows():
                return [operands[1]]
            case Local():
                shape = (int(operands[0]), *params["shape"][1:]) if operands else params["shape"]
                return [undefined(params["dtype"], shape)]
            case Private():
                return [undefined(instruction.result.type.dtype, operands[0].shape)]
            case For():
                return self.loop(instruction, operands, env)
            case If():
                if operands[0]:
                    self.block(instruction.regions[0], env)
                return []
            case ColdFunction() | FunctionDefinition():
                (self.functions[params["function"]],) = instruction.regions
                return []
            case FunctionAddress():
                return [np.int64(1 + list(self.functions).index(params["function"])) if all(operands) else np.int64(0)]
            case CallIndirect():
                return self.call([*self.functions.values()][int(operands[0]) - 1], operands[1:], env)
            case Call():
                return self.call(self.functions[params["function"]], operands, env)
            case RefAt():
                rank = operands[0].ndim
                return [row_from(operands[0], operands[1 : 1 + rank], *map(int, operands[1 + rank :]))]
            case TableEntry():
                entry = operands[1 + int(operands[0])]
                return [entry.reshape(-1) if isinstance(instruction.operands[1].type, RefType) else entry]
            case ColdCall():
                default_count = params["defaults"]
                if not operands[0]:
                    return operands[1 : 1 + default_count]
                region = self.functions[params["function"]]
                env.update(zip(region.parameters, operands[1 + default_count :], strict=True))
                self.block(region, env)
                return [env[v] for v in region.results]
            case Fail():
                if operands[0] and not self.status:
                    self.status = params["code"]
                return []
            case Product():
                self.product(instruction, [int(v) for v in operands[:3]], operands[3:], env)
                return []
            case Library():
                instruction.op.call(operands, params)
                return []
        results = instruction.op.evaluate(operands, params, [v.type for v in instruction.results])
        return [r[()] for r in results]

    def product(self, instruction: Instruction, extents: Sequence[int], parts: Sequence[Any], env: Env) -> None:
        """Evaluate the operands element by element, multiply them, and run the epilogue of each sum."""
        rows, columns, depth = extents
        *operands, epilogue = instruction.regions[:3]
        row_combine: Sequence[str] = instruction.params.get("row_combine", ())
        totals: dict[tuple[int, int], list[Any]] = {}
        matrices = []
        for region, (height, width) in zip(operands, ((rows, depth), (depth, columns)), strict=True):
            dtype = region.results[0].type.dtype.numpy
            matrices.append(np.empty((height, width, len(region.results)), dtype))
            for index in np.ndindex(height, width):
                env.update(zip(region.parameters, map(np.int64, index), strict=True))
                self.block(region, env)
                matrices[-1][index] = [env[v] for v in region.results]
        sums = product_of_parts(*matrices)
        for index in np.ndindex(rows, columns):
            env.update(zip(epilogue.parameters, (*map(np.int64, index), *sums[index]), strict=True))
            self.block(epilogue, env)
            combine, location = instruction.params.get("combine", ()), (index[0] // ROWS, index[1])
            for part, v, joined in zip(parts, epilogue.results, combine, strict=False):
                (part[location],) = join([joined], [part[location]], [env[v]])
            if row_combine:
                row_values, run = [env[v] for v in epilogue.results[len(parts) :]], (index[0], index[1] // COLUMNS)
                totals[run] = join(row_combine, totals[run], row_values) if run in totals else row_values
        for run, row_values in totals.items():
            ends = instruction.regions[3]
            env.update(zip(ends.parameters, (*map(np.int64, run), *row_values), strict=True))
            self.block(ends, env)
        for row, total in enumerate(matrices[0].sum(axis=(1, 2))) if instruction.params.get("left_row_sums") else ():
            ends = instruction.regions[-1]
            env.update(zip(ends.parameters, (np.int64(row), total), strict=True))
            self.block(ends, env)

    def index(self, ref: Any, index: Sequence[Any]) -> tuple[int, ...]:
        position = tuple(map(int, index))
        for i, n in zip(position, ref.shape, strict=True):
            if not 0 <= i < n:
                raise IndexError(f"a kernel reads or writes at {position} of shape {ref.shape}")
        return position

    def loop(self, instruction: Instruction, operands: list[Any], env: Env) -> Sequence[Any]:
        (region,) = instruction.regions
        count, carried = int(operands[0]), list(operands[1:])
        index, *parameters = region.parameters
        first = len(parameters)
        for i in range(count):
            env[index] = np.int64(i)
            env.update(zip(parameters, carried[:first], strict=True))
            self.block(region, env)
            yielded = [env[v] for v in region.results]
            carried = [*yielded[:first], *join(instruction.params.get("combine") or (), carried[first:], yielded[first:])]
        return carried


def row_from(array: Any, index: Sequence[Any], distance: int = 0) -> Any:
    """Return the memory of an array from an element on; empty if that is out of bounds. ``distance``: length of the rows to
    view it in."""
    assert array.flags.c_contiguous
    offset = 0
    for i, n in zip(index, array.shape, strict=True):
        offset = offset * n + int(i)
    row = array.reshape(-1)[offset if 0 <= offset < array.size else array.size :]
    if not distance:
        return row
    return np.lib.stride_tricks.as_strided(row, (-(-row.size // distance), distance), (distance * row.itemsize, row.itemsize))


def undefined(dtype: DType, shape: Sequence[int]) -> Any:
    """Return an array with arbitrary contents, which no result may depend on."""
    return np.full(shape, 113, np.uint8).astype(dtype.numpy)


def product_of_parts(x: Any, y: Any) -> Any:
    """Return the product of two matrices whose last axis holds the parts of a number: one, or two for complex numbers."""
    if x.shape[-1] == 1:
        return (x[..., 0] @ y[..., 0])[..., None]
    (a, b), (c, d) = (np.moveaxis(z, -1, 0) for z in (x, y))
    return np.stack([a @ c - b @ d, a @ d + b @ c], axis=-1)


def join(combine: Sequence[str], left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Combine two partial results of a ``for``."""
    out: list[Any] = []
    pairs = zip(combined_values(combine, left), combined_values(combine, right), strict=True)
    for (name, a), (_, b) in pairs:
        if name.startswith("arg"):
            out.extend(_better(name, a, b))
            continue
        op = OPS[name]
        assert isinstance(op, Elementwise)
        out.append(np.asarray(op.function(a[0], b[0]), np.asarray(a[0]).dtype)[()])
    return out


def _better(name: str, a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
    """Return the larger (smaller) value with its position; NaN wins, and the first position wins a tie."""
    (x, i), (y, j) = a, b
    if i < 0 or j < 0:
        return b if i < 0 else a
    x_nan, y_nan = x != x, y != y
    if x_nan or y_nan:
        return a if x_nan and (not y_nan or i < j) else b
    if x == y:
        return a if i < j else b
    return a if (x > y) == (name == "argmax") else b


class _Program:
    """The interpreter of programs. References are arrays, stacks are lists of arrays."""

    def __init__(self, sizes: Sizes, module: Module) -> None:
        self.sizes = sizes
        self.module = module

    def block(self, block: Block, env: Env) -> None:
        for instruction in block.instructions:
            operands = [env[v] for v in instruction.operands]
            for value, result in zip(instruction.results, self.run(instruction, operands, env), strict=True):
                env[value] = result

    def run(self, instruction: Instruction, operands: list[Any], env: Env) -> Sequence[Any]:
        params = instruction.params
        match instruction.op:
            case Alloc():
                return [self.fresh(params)]
            case View():
                return [reinterpreted(operands[0], params["dtype"], [value_of(e, self.sizes) for e in params["shape"]])]
            case Free():
                return []
            case Launch():
                self.launch(params, operands)
                return []
            case Host():
                instruction.op.run(operands, params)
                return []
            case Copy():
                operands[1][...] = operands[0]
                return []
            case Row():
                return [
                    operands[0][int(operands[1])][...] if isinstance(operands[0], list) else operands[0][int(operands[1]), ...]
                ]
            case Stack():
                return [[self.fresh(params) for _ in range(int(operands[0]))] if operands else []]
            case Push():
                t = instruction.operands[0].type
                operands[0].append(self.fresh({"dtype": t.dtype, "shape": t.shape}))
                return [operands[0][-1]]
            case StoreStackLength():
                operands[1][...] = len(operands[0])
                return []
            case BindExtent():
                self.sizes[params["extent"][0]] = int(operands[0])
                return []
            case Repeat():
                return self.repeat(instruction, operands, env)
            case RepeatWhile():
                return self.repeat_while(instruction, operands, env)
            case Branch():
                self.block(instruction.regions[int(operands[0])], env)
                return []
        results = [v.type for v in instruction.results]
        return instruction.op.evaluate(operands, params, results)

    def fresh(self, params: Mapping[str, Any]) -> Any:
        """Allocate a buffer of the program."""
        return undefined(params["dtype"], [value_of(e, self.sizes) for e in params["shape"]])

    def repeat(self, instruction: Instruction, operands: list[Any], env: Env) -> Sequence[Any]:
        length = instruction.params["length"]
        index, *carried = operands
        count = value_of(length[0], self.sizes) if length else int(carried.pop(0))
        for k in reversed(range(count)) if instruction.params["reverse"] else range(count):
            index[...] = k
            carried = self.region(instruction.regions[0], carried, env)
        return carried

    def repeat_while(self, instruction: Instruction, operands: list[Any], env: Env) -> Sequence[Any]:
        condition, body = instruction.regions
        index, *carried = operands
        index[...] = 0
        while self.region(condition, carried, env)[0]:
            carried = self.region(body, carried, env)
            index[...] += 1
        return carried

    def region(self, region: Block, carried: Sequence[Any], env: Env) -> list[Any]:
        env.update(zip(region.parameters, carried, strict=True))
        self.block(region, env)
        return [env[v] for v in region.results]

    def launch(self, params: Mapping[str, Any], operands: list[Any]) -> None:
        kernel = self.module[params["kernel"]]
        sizes = {f"s{k}": value_of(e, self.sizes) for k, e in enumerate(params["sizes"])}
        arguments = []
        for parameter, array in zip(kernel.parameters, operands, strict=True):
            shape = [value_of(e, sizes) for e in parameter.type.shape]
            shaped = array if isinstance(parameter.type, ArrayType) or list(array.shape) == shape else array.view().reshape(shape)
            if not np.shares_memory(shaped, array) and array.size:
                raise ValueError(f"{kernel.name}: an argument of shape {array.shape} cannot be seen as {shape}")
            arguments.append(shaped)
        status = interpret(kernel, *arguments, sizes=sizes)
        if status:
            error, message, *_ = params["failures"][status - 1]
            raise CheckFailed(error, message)
