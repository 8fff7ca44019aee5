"""The state shared by the writers of one CUDA kernel's launches: loops, stages, names and scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source.launch import UNKNOWN_EXTENT, Scratch
from pullback.codegen.cuda.source.names import Names, stored
from pullback.codegen.cuda.source.split_launches import stages
from pullback.codegen.cuda.source.statements import Writer
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import DType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import combined_values


class LaunchWriter:
    """The launches of one kernel while they are written. ``scratch``: its buffers, referred to by index; ``partial``: the
    buffers of a combining loop's partial results."""

    def __init__(self, kernel: Function) -> None:
        self.kernel = kernel
        self.loops = Loops(kernel.body)
        self.stages = stages(kernel, self.loops)
        self.names = Names()
        for value in kernel.parameters:
            self.names.of(value)
        self.top = {v: i for i in kernel.body.instructions for v in i.results}
        self.scratch: list[Scratch] = []
        self.partial: dict[Instruction, list[int]] = {}

    def reserve(self, launch: int, name: str, dtype: DType, shape: Shape, is_private: bool = False) -> int:
        """Reserve a scratch buffer and return its index."""
        scratch = Scratch(name=self.names.fresh(name), dtype=dtype, shape=shape, launch=launch, is_private=is_private)
        self.scratch.append(scratch)
        return len(self.scratch) - 1

    def memory(self, w: Writer, index: int, is_stored: bool = False) -> str:
        return w.scratch(index, self.scratch[index].name, self.scratch[index].dtype, is_stored)

    def extent(self, count: Value) -> int | str:
        """Return a trip count as an extent; ``UNKNOWN_EXTENT`` if the kernel computes it."""
        params = self.top[count].params if count in self.top else {}
        size = params.get("size", params.get("value"))
        return size if isinstance(size, int | str) else UNKNOWN_EXTENT

    def store_partials(self, w: Writer, launch: int, loop: Instruction, results: Sequence[Value], totals: Sequence[str]) -> None:
        """Store a block's partial results for the launch that combines them."""
        combiners = [name for name, values in combined_values(loop.params["combine"], results) for _ in values]
        names = [f"{v.name or combiner}_parts" for v, combiner in zip(results, combiners, strict=True)]
        self.partial[loop] = [self.reserve(launch, name, v.type.dtype, ()) for v, name in zip(results, names, strict=True)]
        with w.braces("if (threadIdx.x == 0) {"):
            for index, total, value in zip(self.partial[loop], totals, results, strict=True):
                w.line(f"{self.memory(w, index, True)}[blockIdx.x] = {stored(total, value.type.dtype)};")
