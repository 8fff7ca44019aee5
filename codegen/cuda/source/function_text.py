"""The text of one CUDA device function while it is written: its lines, its values, and the parameters that these need."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pullback.codegen.cuda.source.names import Names, bare, loaded, stored_name, type_name
from pullback.codegen.cuda.source.packs import Packing
from pullback.codegen.cuda.source.partial_results import PartialResultText
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc
from pullback.ir.core.types import I64, DType, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.text import short_file

WIDTH = 118
"""Most characters of a line of a function's head."""
_KINDS = (
    "pointer", "scalar", "stride", "size", "number", "width", "chunks", "shared", "scratch", "blocks", "parts", "status",
)  # fmt: skip
"""The kinds of arguments, in the order of a function's parameters."""


@dataclass(frozen=True)
class Location:
    """The memory of a reference's elements. ``text``: its pointer; ``position`` and ``axis``: the kernel parameter whose
    strides it has, from that axis on."""

    text: str
    type: RefType
    position: int = -1
    axis: int = 0
    is_parameter: bool = False
    is_stored: bool = True


def comment_text(loc: Loc) -> str:
    """Return a location as a comment names it."""
    return re.sub(r"[^\x20-\x7e]|\\$", "?", str(replace(loc, file=short_file(loc.file))))


class FunctionText(PartialResultText):
    """The text of one device function; a subclass writes its instructions."""

    def __init__(self, kernel: Function, names: Names) -> None:
        self.kernel, self.names = kernel, names
        self.lines: list[str] = []
        self.depth = 1
        self.texts: dict[Value, str] = {}
        self.locations: dict[Value, Location] = {}
        self.parameters: dict[tuple[object, ...], str] = {}
        self.loc: Loc = NOWHERE
        self.last: dict[str, str] = {}
        self.packing: Packing | None = None

    # lines and parameters

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def braces(self, opening: str, closing: str = "}") -> Iterator[None]:
        self.line(opening)
        self.depth += 1
        self.loc = NOWHERE
        yield
        self.depth -= 1
        self.loc = NOWHERE
        self.line(closing)

    def sync(self) -> None:
        """Emit a barrier of the block, unless the last line is one."""
        if self.lines and self.lines[-1].strip() != "__syncthreads();":
            self.line("__syncthreads();")

    def pragma(self, text: str) -> None:
        self.lines.append(text)

    def slots(self) -> tuple[tuple[object, ...], ...]:
        return tuple(sorted(self.parameters, key=lambda slot: (_KINDS.index(str(slot[0])), slot[1:2], slot[2:])))

    def function(self, name: str, comment: str, bounds: str = "") -> str:
        """Return the complete function. ``comment``: the line above it; ``bounds``: the most threads of a block, and the
        number of blocks that must fit on a multiprocessor."""
        declarations = [self.parameters[slot] for slot in self.slots()]
        head, lines = f'extern "C" __global__ void {bounds}{name}(', [""]
        for k, declaration in enumerate(declarations):
            text = declaration + (", " if k + 1 < len(declarations) else ") {")
            if len(lines[-1]) + len(text) > WIDTH - 8:
                lines.append("")
            lines[-1] += text
        if not declarations:
            lines = [") {"]
        is_short = len(lines) == 1 and len(head + lines[0]) <= WIDTH
        signature = [head + lines[0]] if is_short else [head, *(f"        {t}" for t in lines)]
        return "\n".join([f"// {comment}", *(t.rstrip() for t in signature), *self.lines, "}"])

    def parameter(self, text: str, declaration: str, *slot: object) -> str:
        self.parameters.setdefault(slot, f"{declaration}{text}")
        return text

    def scratch(self, index: int, name: str, dtype: DType, is_stored: bool = False) -> str:
        """Return the pointer to a scratch buffer."""
        return self.parameter(name, f"{'' if is_stored else 'const '}{stored_name(dtype)}* __restrict__ ", "scratch", index)

    def blocks(self, launch: int) -> str:
        """Return the number of blocks of an earlier launch."""
        return self.parameter("blocks", "long long ", "blocks", launch)

    def parts(self) -> str:
        """Return the number of blocks that share the K of a product's tile."""
        return self.parameter("parts", "int ", "parts")

    def status(self) -> str:
        return self.parameter("status", "int* ", "status")

    def size(self, extent: int | str) -> str:
        if isinstance(extent, int):
            return str(extent)
        return self.parameter(extent, "long long ", "size", int(extent[1:]))

    def product(self, shape: Shape) -> str:
        """Return the number of elements of a shape, in parentheses if it is more than one word."""
        texts = [self.size(e) for e in shape]
        return f"({' * '.join(texts)})" if len(texts) > 1 else texts[0] if texts else "1"

    def pointer(self, location: Location) -> str:
        if not location.is_parameter:
            return location.text
        const = "" if location.is_stored else "const "
        return self.parameter(
            location.text, f"{const}{stored_name(location.type.dtype)}* __restrict__ ", "pointer", location.position
        )

    def stride(self, location: Location, axis: int) -> str:
        name = self.names.stride(self.kernel.parameters[location.position], location.axis + axis)
        return self.parameter(name, "long long ", "stride", location.position, location.axis + axis)

    # values

    def value(self, value: Value) -> str:
        if value not in self.texts and value in self.kernel.parameters:
            position, dtype = self.kernel.parameters.index(value), value.type.dtype
            t = type_name(dtype) if dtype.is_bool else stored_name(dtype)
            name = self.parameter(self.names.of(value), f"{t} ", "scalar", position, dtype.name)
            self.texts[value] = name if dtype.is_bool else loaded(name, dtype)
        return self.texts[value]

    def name(self, hint: str, text: str) -> str:
        """Declare an i64 variable; return its name."""
        self.last[hint] = self.let_text(hint, I64, text)
        return self.last[hint]

    def let_int(self, hint: str, text: str) -> str:
        """Declare an int variable; return its name."""
        name = self.names.fresh(hint)
        self.line(f"int {name} = {text};")
        return name

    def let_text(self, hint: str, dtype: DType, text: str) -> str:
        """Declare a variable; return its name."""
        name = self.names.fresh(hint)
        self.line(f"{type_name(dtype)} {name} = {text};")
        return name

    def let(self, value: Value, text: str) -> None:
        self.texts[value] = self.names.of(value)
        self.line(f"{type_name(value.type.dtype)} {self.texts[value]} = {text};")

    def at(self, location: Location, index: Sequence[Value]) -> str:
        """Return an element as an lvalue."""
        base, texts = self.pointer(location), [bare(self.value(v)) for v in index]
        if not texts:
            return f"*{base}"
        if location.type.layout == "strided":
            offsets = [f"{text} * {self.stride(location, k)}" for k, text in enumerate(texts)]
            return f"*pb_at({base}, {' + '.join(offsets)})"
        offset = texts[0]
        for text, extent in zip(texts[1:], location.type.shape[1:], strict=True):
            if offset != "0":
                head = f"({offset})" if " + " in offset else offset
                offset = f"{head} * {self.size(extent)}" + (f" + {text}" if text != "0" else "")
            else:
                offset = text
        return f"{base}[{offset}]"

    # instructions

    @abstractmethod
    def instruction(self, i: Instruction) -> None:
        """Write an instruction."""

    def block(self, block: Block) -> None:
        for i in block.instructions:
            self.instruction(i)

    def comment(self, loc: Loc) -> None:
        """Write the user's line as a comment, unless the last comment was the same line."""
        if loc != self.loc and (loc or loc.note):
            self.line(f"// {comment_text(loc)}")
        self.loc = loc
