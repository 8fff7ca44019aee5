"""Interpret one call of a program on a CUDA device: one instruction after the other, over device buffers."""

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
from pullback.runtime.cuda.arrays.device_array import DeviceArray, dense_strides, signal_owner, strided_buffer, wait_for
from pullback.runtime.cuda.device.memory import Block as Memory
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.libraries.calls import LibraryCall
from pullback.runtime.cuda.program.argument_blocks import SizedKernel, scalar_bits
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram

WORD = 4
"""The bytes of a status."""


class Ref:
    """A buffer during a call. ``strides`` in bytes, None if it is dense; ``known``: the integer that the host has written into
    it, if nothing else has written it since; ``argument``: the argument that it is."""

    __slots__ = ("address", "argument", "dtype", "known", "owner", "shape", "strides")

    def __init__(
        self, address: int, dtype: DType, shape: tuple[int, ...], owner: Any, strides: tuple[int, ...] | None = None,
        argument: DeviceArray | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.owner = owner
        self.strides = strides
        self.known: int | None = None
        self.argument = argument

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bytes


class Run:
    """A call in progress; the device's context must be current."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.instance = instance
        self.sizes = instance.sizes
        self.device = executable.device
        self.stream = executable.device.stream
        self.env: dict[Value, Any] = {}
        self.depth = 0
        self.unchecked: list[tuple[Instruction, Any]] = []

    # a call

    def results(self, arguments: Sequence[Any], keeps: bool) -> list[Any]:
        """Return the results of the program: arrays on the device if ``keeps``, else NumPy arrays."""
        program = self.executable.program
        on_device = [a for a in arguments if isinstance(a, DeviceArray)]
        for buffer in on_device:
            wait_for(buffer)
        for parameter, argument in zip(program.parameters, arguments, strict=True):
            self.env[parameter] = self.argument(parameter, argument)
        self.block(program.body)
        values = [self.env[v] for v in program.results]
        outputs = self.device_results(values) if keeps else self.host_results(values)
        self.check()
        for buffer in on_device:
            signal_owner(buffer)
        return outputs

    def argument(self, parameter: Value, argument: Any) -> Any:
        if not isinstance(parameter.type, RefType):
            return argument
        t = parameter.type
        if isinstance(argument, DeviceArray):
            return Ref(argument.address, t.dtype, argument.shape, argument.owner, argument.strides, argument)
        array = np.ascontiguousarray(argument, t.dtype.numpy).reshape(np.shape(argument))
        buffer = self.fresh(t.dtype, array.shape, f"argument {parameter.name}")
        self.device.staging.upload(array, buffer.address)
        return buffer

    def device_results(self, values: Sequence[Any]) -> list[Any]:
        """Return results as arrays on the device: an argument as itself, but never memory of other libraries."""
        results: list[Any] = []
        for value, ref in zip(self.executable.program.results, values, strict=True):
            if not isinstance(ref, Ref):
                results.append(ref)
                continue
            dtype, shape = value.type.dtype.numpy, self.executable.shape(value, self.sizes)
            if ref.argument is not None:
                results.append(ref.argument.result(dtype, shape))
            else:
                results.append(DeviceArray(self.device, ref.address, dtype, shape, ref.owner))
        return results

    def host_results(self, values: Sequence[Any]) -> list[Any]:
        """Return results as NumPy arrays."""
        results: list[Any] = []
        pairs = []
        for value, ref in zip(self.executable.program.results, values, strict=True):
            if not isinstance(ref, Ref):
                results.append(ref)
                continue
            dtype, shape = value.type.dtype.numpy, self.executable.shape(value, self.sizes)
            if ref.strides is not None and ref.argument is not None:
                results.append(ref.argument.seen_as(dtype, shape).copy_to_host())
                continue
            results.append(np.empty(shape, dtype))
            pairs.append((ref.address, results[-1]))
        self.check()
        self.device.staging.download(pairs)
        self.device.launched.clear()
        return results

    # buffers

    def fresh(self, dtype: DType, shape: tuple[int, ...], what: str) -> Ref:
        size = math.prod(shape) * dtype.bytes
        text = f"{what} of {self.executable.title} ({dtype}[{','.join(map(str, shape))}])"
        block = self.device.take(size, text)
        return Ref(block.address, dtype, shape, block)

    def allocated(self, value: Value, dtype: DType, extents: Sequence[Any]) -> Ref:
        return self.fresh(dtype, tuple(value_of(e, self.sizes) for e in extents), f"buffer {value.name or 'without name'}")

    def free(self, buffer: Any) -> None:
        """Release a buffer or a stack, and the views of it."""
        for ref in buffer if isinstance(buffer, list) else [buffer]:
            if isinstance(ref, Ref) and isinstance(ref.owner, Memory):
                ref.owner.release()

    def set_scalar(self, ref: Ref, constant: int) -> None:
        """Write an integer into an i64 buffer."""
        low, high = constant & 0xFFFFFFFF, (constant >> 32) & 0xFFFFFFFF
        cuda.memset_d32_async(ref.address, low, 1, self.stream)
        if ref.known is None or (ref.known >> 32) & 0xFFFFFFFF != high:
            cuda.memset_d32_async(ref.address + 4, high, 1, self.stream)
        ref.known = constant

    def scalar(self, value: Any) -> int:
        """Return the integer or bool in a buffer, from the device unless the host has written it."""
        if not isinstance(value, Ref):
            return int(value)
        if value.known is None:
            scalar = np.empty((), value.dtype.numpy)
            self.check()
            self.device.staging.download([(value.address, scalar)])
            return int(scalar)
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
        # Only complex arrays viewed as their parts have another layout.
        strides = None if ref.strides is None else (*ref.strides, dtype.bytes)
        return Ref(ref.address, dtype, shape, ref.owner, strides, ref.argument)

    def row(self, sequence: Any, index: int) -> Ref:
        if isinstance(sequence, list):
            element: Ref = sequence[index]
            return element
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
                env[i.result] = self.allocated(i.result, params["dtype"], params["shape"])
            case View():
                shape = tuple(value_of(e, self.sizes) for e in params["shape"])
                env[i.result] = self.view(env[i.operands[0]], params["dtype"], shape)
            case Free():
                self.free(env.pop(i.operands[0], None))
            case Copy():
                self.copy(env[i.operands[0]], env[i.operands[1]])
            case Row():
                env[i.result] = self.row(env[i.operands[0]], self.scalar(env[i.operands[1]]))
            case Stack():
                count = self.scalar(env[i.operands[0]]) if i.operands else 0
                env[i.result] = [self.allocated(i.result, params["dtype"], params["shape"]) for _ in range(count)]
            case Push():
                t = i.operands[0].type
                env[i.operands[0]].append(self.allocated(i.operands[0], t.dtype, t.shape))
                env[i.result] = env[i.operands[0]][-1]
            case StoreStackLength():
                self.set_scalar(env[i.operands[1]], len(env[i.operands[0]]))
            case Repeat():
                self.repeat(i)
            case RepeatWhile():
                self.repeat_while(i)
            case Branch():
                self.depth += 1
                self.block(i.regions[self.scalar(env[i.operands[0]])])
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
        count = value_of(length[0], self.sizes) if length else self.scalar(carried.pop(0))
        self.depth += 1
        for k in reversed(range(count)) if i.params["reverse"] else range(count):
            self.set_scalar(index, k)
            carried = self.region(i.regions[0], carried)
        self.depth -= 1
        self.env.update(zip(i.results, carried, strict=True))

    def repeat_while(self, i: Instruction) -> None:
        condition, body = i.regions
        index, *carried = (self.env[v] for v in i.operands)
        self.depth += 1
        self.set_scalar(index, 0)
        iterations = 0
        while self.scalar(self.region(condition, carried)[0]):
            carried = self.region(body, carried)
            iterations += 1
            self.set_scalar(index, iterations)
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

    def start(self, launch: SizedKernel, operands: Sequence[Any], scratch: Sequence[int], status: int | None) -> None:
        loaded = self.executable.loaded
        assert loaded is not None
        for each in launch.starts:
            if isinstance(each, LibraryCall):
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
        """Return memory for the status of a launch."""
        block = self.device.take(WORD, f"a status of {self.executable.title}")
        cuda.memset_d32_async(block.address, 0, 1, self.stream)
        self.unchecked.append((i, block))
        return block.address

    def check(self) -> None:
        """Wait for the launches that can fail and are unchecked. Raises the error of the first that failed."""
        if not self.unchecked:
            return
        waiting, self.unchecked = self.unchecked, []
        statuses = np.zeros(len(waiting), np.int32)
        self.device.staging.download([(block.address, statuses[k : k + 1]) for k, (_, block) in enumerate(waiting)])
        for (i, _), status in zip(waiting, statuses.tolist(), strict=True):
            if status:
                raise self.executable.failed(i, status)

    # on the host

    def in_python(self, i: Instruction) -> None:
        """Run a host call on copies of its operands."""
        assert isinstance(i.op, Host)
        self.check()
        refs = [self.env[v] for v in i.operands]
        values = self.host_copies(refs)
        i.op.run(values, i.params)
        first = len(refs) - i.op.outputs(i.params)
        for ref, value in zip(refs[first:], values[first:], strict=True):
            ref.known = None
            self.device.staging.upload(np.ascontiguousarray(value).reshape(ref.shape), ref.address)

    def host_copies(self, refs: Sequence[Any]) -> list[Any]:
        """Copy buffers to NumPy arrays, and return them with the scalars unchanged. Of a strided buffer, the bytes between are
        copied too."""
        arrays: list[Any] = []
        pairs = []
        for ref in refs:
            if not isinstance(ref, Ref):
                arrays.append(ref)
            elif ref.strides is None:
                arrays.append(np.empty(ref.shape, ref.dtype.numpy))
                pairs.append((ref.address, arrays[-1]))
            else:
                first, buffer, view = strided_buffer(ref.shape, ref.dtype.numpy, ref.strides)
                arrays.append(view)
                pairs.append((ref.address + first, buffer))
        self.device.staging.download(pairs)
        return arrays

    def on_host(self, i: Instruction, operands: Sequence[Any]) -> None:
        """Run a launch on the CPU, on copies, and copy back the buffers that it writes."""
        self.check()
        executable = self.executable.on_host(i)
        values = self.host_copies(operands)
        results = iter(executable.run(list(values), self.sizes))
        numbers = {k: next(results) for k, ref in enumerate(operands) if isinstance(ref, Ref) and not ref.shape}
        for position in self.executable.written[i.params["kernel"]]:
            self.device.staging.upload(numbers.get(position, values[position]), operands[position].address)
