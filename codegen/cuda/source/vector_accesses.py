"""Loops of a CUDA kernel whose threads take several contiguous elements in one load or store of up to 16 bytes.

A load or store is packed if its last index is the loop's counter plus an invariant. A loop with a packed access takes packs of
as many elements as the widest of its element types has in 16 bytes. Which elements a thread takes does not depend on where
arrays begin, and so neither do results: unaligned packs and the end of a row are read and written element by element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cuda.source.function_text import FunctionText
from pullback.codegen.cuda.source.names import loaded, stored, stored_name
from pullback.codegen.cuda.source.packs import Packing, Packs
from pullback.codegen.cuda.source.partial_results import PartialResult
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, Load, Prefetch, Store

PACK_BYTES, MOST_ELEMENTS = 16, 8
"""Bytes of a pack, and its most elements."""
MOST_ARRAYS = 12
"""Most packs that fit in registers."""
MOST_WORK = 256
"""Largest weight of a pack's elements together: a body that takes longer to compute than to move is better distributed over
more threads."""
CHEAP, EXPENSIVE = 1, 16
"""Weight of a cheap and of any other op, for each 4 bytes of its result."""


def find_packs(w: FunctionText, region: Block) -> Packs | None:
    """Return the packed accesses of a loop's body; None if there are none, if it contains loops or branches, or if it is
    limited by computation."""
    if any(i.regions for i in region.instructions):
        return None
    counter, definitions = region.parameters[0], {v: i for i in region.instructions for v in i.results}
    written = {i.operands[1] for i in region.instructions if isinstance(i.op, Store | AtomicAdd)}
    varies = {counter}
    for i in region.instructions:
        reads_written = isinstance(i.op, Load) and i.operands[0] in written
        if reads_written or not varies.isdisjoint(i.operands):
            varies.update(i.results)

    def is_along(index: Sequence[Value]) -> bool:
        return bool(index) and varies.isdisjoint(index[:-1]) and is_shifted(index[-1], counter, definitions, varies)

    accesses: dict[Value, list[Instruction]] = {}
    for i in region.instructions:
        if isinstance(i.op, Load | Store | AtomicAdd):
            accesses.setdefault(i.operands[0 if isinstance(i.op, Load) else 1], []).append(i)
    packed = [
        i
        for ref, group in accesses.items()
        if _is_contiguous(w, ref) and _may_be_reordered(group)
        for i in group
        if is_along(_index(i))
    ]
    loads = tuple(i for i in region.instructions if i in packed and isinstance(i.op, Load))
    stores = tuple(i for i in region.instructions if i in packed and not isinstance(i.op, Load))
    if not 0 < len(packed) <= MOST_ARRAYS:
        return None
    width = min(MOST_ELEMENTS, PACK_BYTES // max(_ref(i).type.dtype.bytes for i in packed))
    if width < 2:
        return None
    others = [i for i in region.instructions if i not in packed]
    head = _definitions_of(others, [v for i in packed for v in _index(i)])
    ends = [v for i in others if not i.results for v in i.operands]
    keep = {
        *_definitions_of(others, [*region.results, *(i.operands[0] for i in stores), *ends]),
        *(i for i in others if not i.results),
    }
    invariant = {i for i in head if varies.isdisjoint(i.results)}
    body = tuple(i for i in region.instructions if i in packed or (i in keep and i not in invariant))
    if width * _weight(body) > MOST_WORK:
        return None
    return Packs(width, loads, stores, head, body, _is_pure(body, packed, varies))


def _ref(i: Instruction) -> Value:
    return i.operands[0 if isinstance(i.op, Load) else 1]


def _index(i: Instruction) -> tuple[Value, ...]:
    return i.operands[1 if isinstance(i.op, Load) else 2 :]


def _reads(i: Instruction, packs: Packs) -> tuple[Value, ...]:
    """Return the operands that an instruction of a body needs for each element."""
    return () if i in packs.loads else i.operands[:1] if i in packs.stores else i.operands


def _is_contiguous(w: FunctionText, ref: Value) -> bool:
    """Return whether a reference is contiguous along its last axis."""
    return ref in w.locations and w.locations[ref].type.layout == "c"


def _may_be_reordered(accesses: Sequence[Instruction]) -> bool:
    """Return whether all loads may precede, and all stores follow, the other instructions."""
    if any(isinstance(i.op, AtomicAdd) or (isinstance(i.op, Load | Store) and i.op.masked) for i in accesses):
        return False
    stores = [k for k, i in enumerate(accesses) if isinstance(i.op, Store)]
    if not stores or len(stores) == len(accesses):
        return True
    is_same = all(_index(i) == _index(accesses[0]) for i in accesses)
    return is_same and all(isinstance(i.op, Store) for i in accesses[stores[0] :])


def _definitions_of(instructions: Sequence[Instruction], values: Sequence[Value]) -> tuple[Instruction, ...]:
    """Return the instructions on which values depend, in order."""
    needed, definitions = set(values), []
    for i in reversed(instructions):
        if not needed.isdisjoint(i.results):
            definitions.append(i)
            needed.update(i.operands)
    return tuple(reversed(definitions))


def _is_pure(body: Sequence[Instruction], packed: Sequence[Instruction], varies: set[Value]) -> bool:
    """Return whether a body accesses only packs and memory that is the same for all elements."""
    others = [i for i in body if i not in packed and not isinstance(i.op, Elementwise | Constant | Extent | Prefetch)]
    return all(isinstance(i.op, Load) and varies.isdisjoint(i.results) for i in others)


def _weight(body: Sequence[Instruction]) -> int:
    total = 0
    for i in body:
        if isinstance(i.op, Elementwise):
            size = max(v.type.dtype.bytes for v in (*i.operands, *i.results))
            total += (CHEAP if i.op.cheap else EXPENSIVE) * (1 if size <= 4 else 2)
        else:
            total += 1
    return total


def _alignment_test(w: FunctionText, region: Block, packs: Packs) -> str:
    """Return the condition, testable before a loop, under which its first packs and so all full packs are aligned; "" if it
    cannot be tested there."""
    counter = region.parameters[0]
    inside = {v for i in region.instructions for v in i.results}
    accesses = (*packs.loads, *packs.stores)
    if any(_index(i)[-1] is not counter or not inside.isdisjoint(_index(i)[:-1]) for i in accesses):
        return ""
    name, w.texts[counter] = w.texts.get(counter, ""), "0"
    addresses = [re.sub(r"^&(\w+)\[0\]$", r"\1", f"&{w.at(w.locations[_ref(i)], _index(i))}") for i in accesses]
    w.texts[counter] = name
    return " && ".join(f"pb_is_whole<{packs.width}>({address}, {packs.width})" for address in dict.fromkeys(addresses))


@contextmanager
def pack_loop(w: FunctionText, region: Block, packs: Packs, first: str, bounds: tuple[str, str, str]) -> Iterator[str]:
    """Emit a loop with counter ``first``; ``places``: its start, end and step. If the alignment of all packs can be tested
    before the loop, the loop is emitted in two variants: the aligned one has a third to a half of the instructions. Yield
    the name of the flag that selects it, or ""."""
    (start, end, step), test = bounds, _alignment_test(w, region, packs)
    if not test:
        with w.braces(f"for (long long {first} = {start}; {first} < {end}; {first} += {step}) {{"):
            yield ""
        return
    is_aligned = w.names.fresh("whole")
    w.line(f"bool {is_aligned} = {test};")
    head = f"pb_packs<{packs.width}>({start}, {end}, {step}, {is_aligned}, [&](long long {first}, bool {is_aligned}) {{"
    with w.braces(head, "});"):
        yield is_aligned


@contextmanager
def pack_body(
    w: FunctionText,
    region: Block,
    packs: Packs,
    first: str,
    remaining: str,
    width: str,
    is_aligned: str,
    parts: Sequence[PartialResult],
) -> Iterator[None]:
    """Emit the body of a loop over packs, of which one starts at index ``first`` with ``remaining`` elements from there on.
    Statements emitted inside the ``with`` run for each element. ``is_aligned``: the flag that is true for full, aligned
    packs, or ""."""
    counter, names = region.parameters[0], {}
    pack_size = f"pb_count<{packs.width}>({remaining}, {width})"
    count, k = w.let_int("count", f"{is_aligned} ? {packs.width} : {pack_size}" if is_aligned else pack_size), w.names.fresh("k")
    arguments = f"{count}, {is_aligned}" if is_aligned else count
    name, w.texts[counter] = w.texts.get(counter, ""), first
    for i in packs.head:
        w.instruction(i)
    addresses = {}
    for i in (*packs.loads, *packs.stores):
        location, t = w.locations[_ref(i)], stored_name(_ref(i).type.dtype)
        names[i] = w.names.fresh(f"{location.text}_{packs.width}")
        addresses[i] = f"&{w.at(location, _index(i))}"
        if i in packs.loads:
            w.line(f"pb_pack<{t}, {packs.width}> {names[i]} = pb_read<{packs.width}>({addresses[i]}, {arguments});")
        else:
            w.line(f"pb_pack<{t}, {packs.width}> {names[i]};")
    packing = Packing(packs, count, k, names, {})
    for part in parts:
        if part.is_sum:
            packing.sums[part.text] = w.let_text(f"{part.text.removesuffix('_part')}_{packs.width}", part.dtype, "0")
    w.pragma("#pragma unroll")
    with w.braces(f"for (int {k} = 0; {k} < {packs.width}; ++{k}) {{"), _guarded(w, packing):
        w.texts[counter] = name
        if name and (counter in region.results or any(counter in _reads(i, packs) for i in packs.body)):
            w.line(f"long long {name} = {first} + {k};")
        w.packing = packing
        for i in packs.body:
            if i in names:
                _move_element(w, i, packing)
            else:
                w.instruction(i)
        yield
        w.packing = None
    for text, total in packing.sums.items():
        w.line(f"{text}.add({total});")
    for i in packs.stores:
        w.line(f"pb_write({addresses[i]}, {names[i]}, {arguments});")


@contextmanager
def _guarded(w: FunctionText, packing: Packing) -> Iterator[None]:
    if packing.packs.is_pure:
        yield
        return
    with w.braces(f"if ({packing.at} < {packing.count}) {{"):
        yield


def _move_element(w: FunctionText, i: Instruction, packing: Packing) -> None:
    """Move an element of a pack to a variable, or a value to an element of a pack."""
    dtype, text = _ref(i).type.dtype, f"{packing.names[i]}.at[{packing.at}]"
    if isinstance(i.op, Load):
        w.comment(i.loc)
        w.let(i.result, loaded(text, dtype))
    else:
        w.line(f"{text} = {stored(w.value(i.operands[0]), dtype)};")
