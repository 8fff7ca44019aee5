"""Loops of one CUDA kernel whose threads take several elements that lie side by side, in one load or store of up to 16 bytes.

A load or store is packed if its last index is the loop's counter, plus what stays the same. A loop with one takes packs of as
many elements as the widest of them has in 16 bytes. The same elements are one thread's wherever arrays begin, so that no result
depends on that: what is not aligned, or is the end of a row, is read and written element by element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cuda.source.function_text import FunctionText
from pullback.codegen.cuda.source.names import loaded, stored, stored_name
from pullback.codegen.cuda.source.packs import Packing, Packs
from pullback.codegen.cuda.source.partial_results import Part
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, Load, Prefetch, Store

BYTES, MOST = 16, 8
"""The bytes of a pack, and its most elements."""
MOST_ARRAYS = 12
"""So many packs have room in registers."""
MOST_WORK = 256
"""The elements of a pack weigh no more than this: what takes longer to compute than to move is better done by many threads."""
CHEAP, DEAR = 1, 16
"""What an op weighs for each 4 bytes of its result."""


def find(w: FunctionText, region: Block) -> Packs | None:
    """What a loop's body packs; None if nothing, if it has loops of its own or branches, or if its work is what takes time."""
    if any(i.regions for i in region.instructions):
        return None
    counter, made = region.parameters[0], {v: i for i in region.instructions for v in i.results}
    written = {i.operands[1] for i in region.instructions if isinstance(i.op, Store | AtomicAdd)}
    varies = {counter}
    for i in region.instructions:
        reads_written = isinstance(i.op, Load) and i.operands[0] in written
        if reads_written or not varies.isdisjoint(i.operands):
            varies.update(i.results)

    def is_along(index: Sequence[Value]) -> bool:
        return bool(index) and varies.isdisjoint(index[:-1]) and is_shifted(index[-1], counter, made, varies)

    accesses: dict[Value, list[Instruction]] = {}
    for i in region.instructions:
        if isinstance(i.op, Load | Store | AtomicAdd):
            accesses.setdefault(i.operands[0 if isinstance(i.op, Load) else 1], []).append(i)
    found = [i for ref, those in accesses.items() if _lies(w, ref) and _in_turn(those) for i in those if is_along(_index(i))]
    loads = tuple(i for i in region.instructions if i in found and isinstance(i.op, Load))
    stores = tuple(i for i in region.instructions if i in found and not isinstance(i.op, Load))
    if not 0 < len(found) <= MOST_ARRAYS:
        return None
    width = min(MOST, BYTES // max(_ref(i).type.dtype.bytes for i in found))
    if width < 2:
        return None
    rest = [i for i in region.instructions if i not in found]
    head = _makers(rest, [v for i in found for v in _index(i)])
    ends = [v for i in rest if not i.results for v in i.operands]
    keep = {*_makers(rest, [*region.results, *(i.operands[0] for i in stores), *ends]), *(i for i in rest if not i.results)}
    again = {i for i in head if varies.isdisjoint(i.results)}
    body = tuple(i for i in region.instructions if i in found or (i in keep and i not in again))
    if width * _weight(body) > MOST_WORK:
        return None
    return Packs(width, loads, stores, head, body, _is_pure(body, found, varies))


def _ref(i: Instruction) -> Value:
    return i.operands[0 if isinstance(i.op, Load) else 1]


def _index(i: Instruction) -> tuple[Value, ...]:
    return i.operands[1 if isinstance(i.op, Load) else 2 :]


def _reads(i: Instruction, packs: Packs) -> tuple[Value, ...]:
    """What an instruction of a body reads for each element."""
    return () if i in packs.loads else i.operands[:1] if i in packs.stores else i.operands


def _lies(w: FunctionText, ref: Value) -> bool:
    """Whether what follows in a reference's last axis follows in memory."""
    return ref in w.places and w.places[ref].type.layout == "c"


def _in_turn(accesses: Sequence[Instruction]) -> bool:
    """Whether the loads may be made before everything else, and the stores after it."""
    if any(isinstance(i.op, AtomicAdd) or (isinstance(i.op, Load | Store) and i.op.masked) for i in accesses):
        return False
    stores = [k for k, i in enumerate(accesses) if isinstance(i.op, Store)]
    if not stores or len(stores) == len(accesses):
        return True
    is_same = all(_index(i) == _index(accesses[0]) for i in accesses)
    return is_same and all(isinstance(i.op, Store) for i in accesses[stores[0] :])


def _makers(instructions: Sequence[Instruction], values: Sequence[Value]) -> tuple[Instruction, ...]:
    """What of some instructions makes values."""
    needed, made = set(values), []
    for i in reversed(instructions):
        if not needed.isdisjoint(i.results):
            made.append(i)
            needed.update(i.operands)
    return tuple(reversed(made))


def _is_pure(body: Sequence[Instruction], packed: Sequence[Instruction], varies: set[Value]) -> bool:
    """Whether a body reads and writes nothing but packs and what is the same for all elements."""
    rest = [i for i in body if i not in packed and not isinstance(i.op, Elementwise | Constant | Extent | Prefetch)]
    return all(isinstance(i.op, Load) and varies.isdisjoint(i.results) for i in rest)


def _weight(body: Sequence[Instruction]) -> int:
    found = 0
    for i in body:
        if isinstance(i.op, Elementwise):
            size = max(v.type.dtype.bytes for v in (*i.operands, *i.results))
            found += (CHEAP if i.op.cheap else DEAR) * (1 if size <= 4 else 2)
        else:
            found += 1
    return found


def _known(w: FunctionText, region: Block, packs: Packs) -> str:
    """What is true before a loop if its first elements lie as words do, and so all whole packs; "" if it is not known then."""
    counter = region.parameters[0]
    inside = {v for i in region.instructions for v in i.results}
    accesses = (*packs.loads, *packs.stores)
    if any(_index(i)[-1] is not counter or not inside.isdisjoint(_index(i)[:-1]) for i in accesses):
        return ""
    name, w.texts[counter] = w.texts.get(counter, ""), "0"
    places = [re.sub(r"^&(\w+)\[0\]$", r"\1", f"&{w.at(w.places[_ref(i)], _index(i))}") for i in accesses]
    w.texts[counter] = name
    return " && ".join(f"pb_is_whole<{packs.width}>({place}, {packs.width})" for place in dict.fromkeys(places))


@contextmanager
def turns(w: FunctionText, region: Block, packs: Packs, first: str, places: tuple[str, str, str]) -> Iterator[str]:
    """A loop whose counter is ``first``, from, to and by ``places``. Where it can be known before that all packs lie as words do,
    the loop is there twice: such packs take a third to a half of the instructions. Gives the name of what is true of them."""
    (start, end, step), known = places, _known(w, region, packs)
    if not known:
        with w.braces(f"for (long long {first} = {start}; {first} < {end}; {first} += {step}) {{"):
            yield ""
        return
    whole = w.names.fresh("whole")
    w.line(f"bool {whole} = {known};")
    head = f"pb_packs<{packs.width}>({start}, {end}, {step}, {whole}, [&](long long {first}, bool {whole}) {{"
    with w.braces(head, "});"):
        yield whole


@contextmanager
def packed(
    w: FunctionText, region: Block, packs: Packs, first: str, left: str, width: str, whole: str, parts: Sequence[Part]
) -> Iterator[None]:
    """The body of a loop over packs, the first index of which is ``first``, with ``left`` elements from there on; what is written
    inside the ``with`` is run for each element. ``whole``: what is true where a pack is whole and lies as a word does."""
    counter, names = region.parameters[0], {}
    number = f"pb_count<{packs.width}>({left}, {width})"
    count, k = w.let_int("count", f"{whole} ? {packs.width} : {number}" if whole else number), w.names.fresh("k")
    given = f"{count}, {whole}" if whole else count
    name, w.texts[counter] = w.texts.get(counter, ""), first
    for i in packs.head:
        w.instruction(i)
    places = {}
    for i in (*packs.loads, *packs.stores):
        place, t = w.places[_ref(i)], stored_name(_ref(i).type.dtype)
        names[i] = w.names.fresh(f"{place.text}_{packs.width}")
        places[i] = f"&{w.at(place, _index(i))}"
        if i in packs.loads:
            w.line(f"pb_pack<{t}, {packs.width}> {names[i]} = pb_read<{packs.width}>({places[i]}, {given});")
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
                _move(w, i, packing)
            else:
                w.instruction(i)
        yield
        w.packing = None
    for text, total in packing.sums.items():
        w.line(f"{text}.add({total});")
    for i in packs.stores:
        w.line(f"pb_write({places[i]}, {names[i]}, {given});")


@contextmanager
def _guarded(w: FunctionText, packing: Packing) -> Iterator[None]:
    if packing.packs.is_pure:
        yield
        return
    with w.braces(f"if ({packing.at} < {packing.count}) {{"):
        yield


def _move(w: FunctionText, i: Instruction, packing: Packing) -> None:
    """An element of a pack becomes a value, or a value an element of a pack."""
    dtype, text = _ref(i).type.dtype, f"{packing.names[i]}.at[{packing.at}]"
    if isinstance(i.op, Load):
        w.comment(i.loc)
        w.let(i.result, loaded(text, dtype))
    else:
        w.line(f"{text} = {stored(w.value(i.operands[0]), dtype)};")
