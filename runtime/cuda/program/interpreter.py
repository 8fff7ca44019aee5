"""One call of a program on a CUDA device, walked through: an instruction after the other, over buffers of the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import DType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import (
    Alloc,
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
from pullback.ir.shapes.extents import value_of
from pullback.runtime.cuda.arrays.device_array import DeviceArray, dense_strides, settle, spread, wait_for
from pullback.runtime.cuda.device.memory import Block as Memory
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.libraries.calls import Called
from pullback.runtime.cuda.program.argument_blocks import Bound, scalar_bits
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram

WORD = 4
"""Bytes of a status."""


class Ref:
    """A buffer during a call. ``strides`` in bytes, None where it is dense; ``known``: the number that the host has put into it
    last, if nothing else has written it since; ``given``: the argument that it is."""

    __slots__ = ("address", "dtype", "given", "known", "owner", "shape", "strides")

    def __init__(
        self, address: int, dtype: DType, shape: tuple[int, ...], owner: Any, strides: tuple[int, ...] | None = None,
        given: DeviceArray | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.owner = owner
        self.strides = strides
        self.known: int | None = None
        self.given = given

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bytes


class Run:
    """A call under way; the device's context is current."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.instance = instance
        self.sizes = instance.sizes
        self.device = executable.device
        self.stream = executable.device.stream
        self.env: dict[Value, Any] = {}
        self.depth = 0
        self.waiting: list[tuple[Instruction, Any]] = []

    # a call

    def results(self, arguments: Sequence[Any], keeps: bool) -> list[Any]:
        """The results of the program: arrays on the device if it ``keeps`` them, else NumPy's."""
        program = self.executable.program
        given = [a for a in arguments if isinstance(a, DeviceArray)]
        for buffer in given:
            wait_for(buffer)
        for parameter, argument in zip(program.parameters, arguments, strict=True):
            self.env[parameter] = self.argument(parameter, argument)
        self.block(program.body)
        found = [self.env[v] for v in program.results]
        made = self.kept(found) if keeps else self.copied(found)
        self.check()
        for buffer in given:
            settle(buffer)
        return made

    def argument(self, parameter: Value, argument: Any) -> Any:
        if not isinstance(parameter.type, RefType):
            return argument
        t = parameter.type
        if isinstance(argument, DeviceArray):
            return Ref(argument.address, t.dtype, argument.shape, argument.owner, argument.strides, argument)
        array = np.ascontiguousarray(argument, t.dtype.numpy).reshape(np.shape(argument))
        made = self.fresh(t.dtype, array.shape, f"argument {parameter.name}")
        self.device.staging.upload(array, made.address)
        return made

    def kept(self, found: Sequence[Any]) -> list[Any]:
        """Results as arrays on the device; an argument that is one as it is, else no memory of other libraries."""
        made: list[Any] = []
        for value, ref in zip(self.executable.program.results, found, strict=True):
            if not isinstance(ref, Ref):
                made.append(ref)
                continue
            dtype, shape = value.type.dtype.numpy, self.executable.shape(value, self.sizes)
            if ref.given is not None:
                made.append(ref.given.result(dtype, shape))
            else:
                made.append(DeviceArray(self.device, ref.address, dtype, shape, ref.owner))
        return made

    def copied(self, found: Sequence[Any]) -> list[Any]:
        """Results as NumPy arrays."""
        made: list[Any] = []
        pairs = []
        for value, ref in zip(self.executable.program.results, found, strict=True):
            if not isinstance(ref, Ref):
                made.append(ref)
                continue
            dtype, shape = value.type.dtype.numpy, self.executable.shape(value, self.sizes)
            if ref.strides is not None and ref.given is not None:
                made.append(ref.given.seen_as(dtype, shape).copy_to_host())
                continue
            made.append(np.empty(shape, dtype))
            pairs.append((ref.address, made[-1]))
        self.check()
        self.device.staging.download(pairs)
        self.device.launched.clear()
        return made

    # buffers

    def fresh(self, dtype: DType, shape: tuple[int, ...], what: str) -> Ref:
        size = math.prod(shape) * dtype.bytes
        text = f"{what} of {self.executable.title} ({dtype}[{','.join(map(str, shape))}])"
        block = self.device.take(size, text)
        return Ref(block.address, dtype, shape, block)

    def made(self, value: Value, dtype: DType, extents: Sequence[Any]) -> Ref:
        return self.fresh(dtype, tuple(value_of(e, self.sizes) for e in extents), f"buffer {value.name or 'without name'}")

    def free(self, buffer: Any) -> None:
        """A buffer or a stack is not used any more, nor what was seen of it."""
        for ref in buffer if isinstance(buffer, list) else [buffer]:
            if isinstance(ref, Ref) and isinstance(ref.owner, Memory):
                ref.owner.release()

    def set_number(self, ref: Ref, number: int) -> None:
        """Put an integer into a buffer of an i64."""
        low, high = number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF
        cuda.memset_d32_async(ref.address, low, 1, self.stream)
        if ref.known is None or (ref.known >> 32) & 0xFFFFFFFF != high:
            cuda.memset_d32_async(ref.address + 4, high, 1, self.stream)
        ref.known = number

    def number(self, value: Any) -> int:
        """What an integer or bool in a buffer is; asks the device where the host has not put it there."""
        if not isinstance(value, Ref):
            return int(value)
        if value.known is None:
            found = np.empty((), value.dtype.numpy)
            self.check()
            self.device.staging.download([(value.address, found)])
            return int(found)
        return value.known

    def copy(self, source: Any, target: Ref) -> None:
        target.known = None
        if isinstance(source, Ref):
            if source.address != target.address and target.nbytes:
                cuda.memcpy_dtod_async(target.address, source.address, target.nbytes, self.stream)
            target.known = source.known
        else:
            self.device.staging.upload(np.asarray(source, target.dtype.numpy), target.address)

    def view(self, ref: Ref, dtype: DType, shape: tuple[int, ...]) -> Ref:
        # Of another layout are only complex numbers seen as their parts.
        strides = None if ref.strides is None else (*ref.strides, dtype.bytes)
        return Ref(ref.address, dtype, shape, ref.owner, strides, ref.given)

    def row(self, sequence: Any, index: int) -> Ref:
        if isinstance(sequence, list):
            found: Ref = sequence[index]
            return found
        shape = sequence.shape[1:]
        return Ref(sequence.address + index * math.prod(shape) * sequence.dtype.bytes, sequence.dtype, shape, sequence.owner)

    # instructions

    def block(self, block: Block) -> None:
        for i in block.instructions:
            self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        env, params = self.env, i.params
        match i.op:
            case Launch():
                self.launch(i)
            case Alloc():
                env[i.result] = self.made(i.result, params["dtype"], params["shape"])
            case View():
                shape = tuple(value_of(e, self.sizes) for e in params["shape"])
                env[i.result] = self.view(env[i.operands[0]], params["dtype"], shape)
            case Free():
                self.free(env.pop(i.operands[0], None))
            case Copy():
                self.copy(env[i.operands[0]], env[i.operands[1]])
            case Row():
                env[i.result] = self.row(env[i.operands[0]], self.number(env[i.operands[1]]))
            case Stack():
                count = self.number(env[i.operands[0]]) if i.operands else 0
                env[i.result] = [self.made(i.result, params["dtype"], params["shape"]) for _ in range(count)]
            case Push():
                t = i.operands[0].type
                env[i.operands[0]].append(self.made(i.operands[0], t.dtype, t.shape))
                env[i.result] = env[i.operands[0]][-1]
            case StoreStackLength():
                self.set_number(env[i.operands[1]], len(env[i.operands[0]]))
            case Repeat():
                self.repeat(i)
            case RepeatWhile():
                self.repeat_while(i)
            case Branch():
                self.depth += 1
                self.block(i.regions[self.number(env[i.operands[0]])])
                self.depth -= 1
            case Host():
                self.in_python(i)
            case _:
                values = [env[v] for v in i.operands]
                results = i.op.evaluate(values, params, [v.type for v in i.results])
                env.update(zip(i.results, results, strict=True))

    def repeat(self, i: Instruction) -> None:
        length = i.params["length"]
        index, *carried = (self.env[v] for v in i.operands)
        count = value_of(length[0], self.sizes) if length else self.number(carried.pop(0))
        self.depth += 1
        for k in reversed(range(count)) if i.params["reverse"] else range(count):
            self.set_number(index, k)
            carried = self.region(i.regions[0], carried)
        self.depth -= 1
        self.env.update(zip(i.results, carried, strict=True))

    def repeat_while(self, i: Instruction) -> None:
        condition, body = i.regions
        index, *carried = (self.env[v] for v in i.operands)
        self.depth += 1
        self.set_number(index, 0)
        turns = 0
        while self.number(self.region(condition, carried)[0]):
            carried = self.region(body, carried)
            turns += 1
            self.set_number(index, turns)
        self.depth -= 1
        self.env.update(zip(i.results, carried, strict=True))

    def region(self, region: Block, carried: Sequence[Any]) -> list[Any]:
        self.env.update(zip(region.parameters, carried, strict=True))
        self.block(region)
        return [self.env[v] for v in region.results]

    # steps

    def launch(self, i: Instruction) -> None:
        executable = self.executable
        operands = [self.env[v] for v in i.operands]
        name = i.params["kernel"]
        for position in executable.written[name]:
            operands[position].known = None
        if name not in executable.kernels:
            self.on_host(i, operands)
            return
        launch = executable.bound(self.instance, i)
        if launch.is_on_host:
            self.on_host(i, operands)
            return
        scratch = [self.device.take(size, f"{part} of kernel {name} of {executable.title}") for part, size in launch.scratch]
        status = self.status(i) if launch.has_status else None
        self.start(launch, operands, [block.address for block in scratch], status)
        if status is not None and self.depth:
            self.check()

    def start(self, launch: Bound, operands: Sequence[Any], scratch: Sequence[int], status: int | None) -> None:
        loaded = self.executable.loaded
        assert loaded is not None
        for each in launch.starts:
            if isinstance(each, Called):
                taken = [*(operands[k].address for k in each.operands), *(scratch[k] for k in each.scratch)]
                self.device.launched.append((self.executable.title, each.name))
                each.call(taken, self.stream)
                continue
            values = each.values.copy()
            for at, position in each.pointers:
                values[at] = operands[position].address
            for at, position, axis in each.strides:
                values[at] = self.stride(operands[position], axis)
            for at, position, dtype in each.scalars:
                values[at] = scalar_bits(operands[position], dtype)
            for at, which in each.scratch:
                values[at] = scratch[which]
            for at in each.status:
                values[at] = status
            self.device.launched.append((self.executable.title, each.name))
            function = loaded.function(each.name, each.shared)
            function._launch_kernel(each.grid, each.block, each.packing.pack(*values), each.shared, self.stream)

    def stride(self, ref: Ref, axis: int) -> int:
        strides = dense_strides(ref.shape, ref.dtype.bytes) if ref.strides is None else ref.strides
        return strides[axis]

    # checks

    def status(self, i: Instruction) -> int:
        """Memory for the status of a launch."""
        block = self.device.take(WORD, f"a status of {self.executable.title}")
        cuda.memset_d32_async(block.address, 0, 1, self.stream)
        self.waiting.append((i, block))
        return block.address

    def check(self) -> None:
        """Wait for the launches that can fail and have not been asked yet. Raises what the first one says that failed."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        found = np.zeros(len(waiting), np.int32)
        self.device.staging.download([(block.address, found[k : k + 1]) for k, (_, block) in enumerate(waiting)])
        for (i, _), status in zip(waiting, found.tolist(), strict=True):
            if status:
                raise self.executable.failed(i, status)

    # on the host

    def in_python(self, i: Instruction) -> None:
        """A step in Python, on copies of what it reads."""
        assert isinstance(i.op, Host)
        self.check()
        refs = [self.env[v] for v in i.operands]
        values = self.brought(refs)
        i.op.run(values, i.params)
        first = len(refs) - i.op.outputs(i.params)
        for ref, value in zip(refs[first:], values[first:], strict=True):
            ref.known = None
            self.device.staging.upload(np.ascontiguousarray(value).reshape(ref.shape), ref.address)

    def brought(self, refs: Sequence[Any]) -> list[Any]:
        """Copies of buffers in NumPy arrays; scalars as they are. Of one with strides what lies in between comes too."""
        found: list[Any] = []
        pairs = []
        for ref in refs:
            if not isinstance(ref, Ref):
                found.append(ref)
            elif ref.strides is None:
                found.append(np.empty(ref.shape, ref.dtype.numpy))
                pairs.append((ref.address, found[-1]))
            else:
                first, whole, view = spread(ref.shape, ref.dtype.numpy, ref.strides)
                found.append(view)
                pairs.append((ref.address + first, whole))
        self.device.staging.download(pairs)
        return found

    def on_host(self, i: Instruction, operands: Sequence[Any]) -> None:
        """A launch by the CPU, on copies; what it writes goes back."""
        self.check()
        executable = self.executable.on_host(i)
        values = self.brought(operands)
        results = iter(executable.run(list(values), self.sizes))
        numbers = {k: next(results) for k, ref in enumerate(operands) if isinstance(ref, Ref) and not ref.shape}
        for position in self.executable.written[i.params["kernel"]]:
            self.device.staging.upload(numbers.get(position, values[position]), operands[position].address)
