"""Describe whether BLAS or generated code computes the matrix products of a program, and why: for schedule dumps and
``explain``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.codegen.cpu.matmul.shape_classes import CLASSES, SUBJECT, class_of
from pullback.ir.core.structure import Instruction, Module, walk
from pullback.ir.core.types import DTYPES as TYPES
from pullback.ir.ops.kernel.kernel import tuned
from pullback.ir.ops.program import launch
from pullback.ir.shapes.extents import by_value_in, factor_names, product, value_of
from pullback.ir.text import Notes
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.program.executable import Executable

Sizes = Mapping[str, int]


def notes_of(module: Module) -> Notes:
    """Return the notes on the launches of a scheduled module, whose program has the shapes of a call."""
    kernels = {f.name: f for f in module.functions if f.kind == "kernel"}
    programs = [f for f in module.functions if f.kind == "program"]
    notes: dict[Instruction, Mapping[int | None, str]] = {}
    for i in (i for f in programs for i in walk(f.body) if i.op is launch):
        calls = [(str(k.params["dtype"]), k.params["extents"]) for k in walk(kernels[i.params["kernel"]].body) if k.op is tuned]
        lines = list(_lines(calls, i.params["sizes"], {}))
        if lines:
            notes[i] = {None: "; ".join(lines)}
    return notes


def of_executable(executable: Executable, sizes: Sizes) -> tuple[str, ...]:
    """Return the choices for the products of a program with these sizes."""
    lines: dict[str, None] = {}
    if executable.driver is not None:
        kernels = executable.kernels.values()
        dtypes = sorted({slot[2] for kernel in kernels for slot in kernel.slots if slot[0] == "choice"})
        return tuple(f"{each.key.subject} of {dtype}, {_class(k)}: {each.chosen} ({each.why})"
                     for dtype in dtypes for k, each in enumerate(choices_matmul.settled(dtype)))  # fmt: skip
    for i in (i for i in walk(executable.program.body) if i.op is launch):
        slots = executable.kernels[i.params["kernel"]].slots
        calls = [(slot[2], slot[3]) for slot in slots if slot[0] == "choice" and slot[1] == SUBJECT]
        lines.update(dict.fromkeys(_lines(calls, i.params["sizes"], sizes)))
    return tuple(lines)


def _lines(calls: Sequence[tuple[str, Any]], arguments: Sequence[Any], sizes: Sizes) -> Iterator[str]:
    products = [product(e) if isinstance(e, tuple | list) else e for e in arguments]
    extents_of = {f"s{k}": value_of(e, sizes) for k, e in enumerate(products) if not by_value_in((e,))}
    for dtype, extents in calls:
        if any(name not in extents_of for e in extents if isinstance(e, str) for name in factor_names(e)):
            continue
        rows, depth, columns = (value_of(e, extents_of) for e in extents)
        position = class_of((rows, depth, columns), TYPES[dtype].part.bytes)
        each = choices_matmul.settled(dtype)[position]
        yield f"{SUBJECT} of {dtype}, {rows}x{depth} by {depth}x{columns}, {_class(position)}: {each.chosen} ({each.why})"


def _class(position: int) -> str:
    return f"{CLASSES[position].name} ({CLASSES[position]})"
