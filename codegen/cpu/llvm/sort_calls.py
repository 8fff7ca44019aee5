"""Calls of NumPy's sorts in emitted LLVM code, and what settles the order of elements that they cannot tell apart."""

from __future__ import annotations

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import element
from pullback.codegen.cpu.llvm.library_calls import stored
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType
from pullback.ir.ops.library.sort import ArgsortRow, SettleRow, SortRow


def sort_row(e: FunctionWriter, i: Instruction) -> None:
    """A call of a sort of NumPy's on a part of a vector: ``int sort(void *first, intp n, void *)``."""
    assert isinstance(i.op, SortRow)
    first, count = (e.env[v].text for v in i.operands[1:])
    row = e.places[i.operands[0]]
    start = e.let(f"getelementptr {element(row.type.dtype)}, ptr {row.pointer}, i64 {first}")
    e.let(f"call i32 {e.callee('sort', i.op.symbol(row.type.dtype))}(ptr {start}, i64 {count}, ptr null)")


def argsort_row(e: FunctionWriter, i: Instruction) -> None:
    """A call of an argsort of NumPy's: ``int argsort(void *row, intp *places, intp n, void *)``. It is not stable."""
    assert isinstance(i.op, ArgsortRow)
    row, places = (e.places[v] for v in i.operands)
    count, dtype = row.extents[0].text, row.type.dtype
    e.let(f"call i32 {e.callee('sort', i.op.symbol(dtype))}(ptr {row.pointer}, ptr {places.pointer}, i64 {count}, ptr null)")
    _settle_ties(e, row.pointer, places.pointer, count, dtype)


def _settle_ties(e: FunctionWriter, row: str, places: str, count: str, dtype: DType) -> None:
    """Sort the places of each run of equal elements."""
    t = element(dtype)
    e.count += 1
    head, body, flush, several, after, done = (f"{name}{e.count}" for name in ("tie", "in", "end", "several", "next", "ties"))
    first, at = stored(e, "i64", "0"), stored(e, "i64", "1")
    e.line(f"br label %{head}")
    e.label(head)
    k = e.let(f"load i64, ptr {at}")
    e.line(f"br i1 {e.let(f'icmp sle i64 {k}, {count}')}, label %{body}, label %{done}")
    e.label(body)
    is_inside = e.let(f"icmp slt i64 {k}, {count}")
    before = e.let(f"sub i64 {k}, 1")
    here = e.let(f"select i1 {is_inside}, i64 {k}, i64 {before}")
    values = []
    for index in (before, here):
        place = e.let(f"load i64, ptr {e.let(f'getelementptr i64, ptr {places}, i64 {index}')}")
        values.append(e.let(f"load {t}, ptr {e.let(f'getelementptr {t}, ptr {row}, i64 {place}')}"))
    if dtype.is_float:
        nan = [e.let(f"fcmp uno {t} {v}, {v}") for v in values]
        same = e.let(f"or i1 {e.let(f'fcmp oeq {t} {values[0]}, {values[1]}')}, {e.let(f'and i1 {nan[0]}, {nan[1]}')}")
    else:
        same = e.let(f"icmp eq {t} {values[0]}, {values[1]}")
    e.line(f"br i1 {e.let(f'and i1 {same}, {is_inside}')}, label %{after}, label %{flush}")
    e.label(flush)
    start = e.let(f"load i64, ptr {first}")
    length = e.let(f"sub i64 {k}, {start}")
    e.line(f"store i64 {k}, ptr {first}")
    e.line(f"br i1 {e.let(f'icmp sgt i64 {length}, 1')}, label %{several}, label %{after}")
    e.label(several)
    callee = e.callee("sort", "sort.int64")
    e.let(f"call i32 {callee}(ptr {e.let(f'getelementptr i64, ptr {places}, i64 {start}')}, i64 {length}, ptr null)")
    e.line(f"br label %{after}")
    e.label(after)
    e.line(f"store i64 {e.let(f'add i64 {k}, 1')}, ptr {at}")
    e.line(f"br label %{head}")
    e.label(done)


_RANKS = {
    "f": """
  %{p}number = load double, ptr %{p}element
  %{p}zeros = fadd double %{p}number, 0.0
  %{p}bits = bitcast double %{p}zeros to i64
  %{p}sign = ashr i64 %{p}bits, 63
  %{p}flip = and i64 %{p}sign, 9223372036854775807
  %{p}ordered = xor i64 %{p}bits, %{p}flip
  %{p}nan = fcmp uno double %{p}number, %{p}number
  %{p}key = select i1 %{p}nan, i64 9223372036854775807, i64 %{p}ordered""",
    "i": """
  %{p}key = load i64, ptr %{p}element""",
}
_RANKS["u"] = _RANKS["i"]

_SETTLE = """
  store i64 {first}, ptr {start}
  %{p}stop = add i64 {first}, {count}
  br label %{p}run
{p}run:
  %{p}from = load i64, ptr {start}
  %{p}more = icmp slt i64 %{p}from, %{p}stop
  br i1 %{p}more, label %{p}first, label %{p}done
{p}first:
  %{p}row = getelementptr i64, ptr {packed}, i64 %{p}from
  %{p}one = load i64, ptr %{p}row
  %{p}high = ashr i64 %{p}one, {shift}
  br label %{p}longer
{p}longer:
  %{p}last = phi i64 [ %{p}from, %{p}first ], [ %{p}to, %{p}look ]
  %{p}to = add i64 %{p}last, 1
  %{p}inside = icmp slt i64 %{p}to, %{p}stop
  br i1 %{p}inside, label %{p}look, label %{p}end
{p}look:
  %{p}next = getelementptr i64, ptr {packed}, i64 %{p}to
  %{p}other = load i64, ptr %{p}next
  %{p}above = ashr i64 %{p}other, {shift}
  %{p}same = icmp eq i64 %{p}above, %{p}high
  br i1 %{p}same, label %{p}longer, label %{p}end
{p}end:
  store i64 %{p}to, ptr {start}
  %{p}length = sub i64 %{p}to, %{p}from
  %{p}several = icmp sgt i64 %{p}length, 1
  br i1 %{p}several, label %{p}again, label %{p}run
{p}again:
  %{p}k = phi i64 [ %{p}from, %{p}end ], [ %{p}after, %{p}again ]
  %{p}before = phi i64 [ -1, %{p}end ], [ %{p}new, %{p}again ]
  %{p}rose = phi i1 [ true, %{p}end ], [ %{p}rises, %{p}again ]
  %{p}at = getelementptr i64, ptr {packed}, i64 %{p}k
  %{p}old = load i64, ptr %{p}at
  %{p}place = and i64 %{p}old, {mask}
  %{p}element = getelementptr i64, ptr {x}, i64 %{p}place{rank}
  %{p}rest = and i64 %{p}key, {mask}
  %{p}lifted = shl i64 %{p}rest, {shift}
  %{p}new = or i64 %{p}lifted, %{p}place
  store i64 %{p}new, ptr %{p}at
  %{p}up = icmp sge i64 %{p}new, %{p}before
  %{p}rises = and i1 %{p}rose, %{p}up
  %{p}after = add i64 %{p}k, 1
  %{p}on = icmp slt i64 %{p}after, %{p}to
  br i1 %{p}on, label %{p}again, label %{p}known
{p}known:
  br i1 %{p}rises, label %{p}run, label %{p}sort
{p}sort:
  %{p}status = call i32 {callee}(ptr %{p}row, i64 %{p}length, ptr null)
  br label %{p}run
{p}done:"""


def settle_row(e: FunctionWriter, i: Instruction) -> None:
    """Where ranks without their low bits are equal: sort again, by those."""
    assert isinstance(i.op, SettleRow)
    x, packed = (e.places[v] for v in i.operands[:2])
    first, count, shift = (e.env[v].text for v in i.operands[2:])
    mask = e.let(f"sub i64 {e.let(f'shl i64 1, {shift}')}, 1")
    e.count += 1
    p = f"settle{e.count}."
    words = {
        "p": p, "start": e.slot("i64"), "first": first, "count": count, "packed": packed.pointer, "shift": shift, "mask": mask,
        "x": x.pointer, "rank": _RANKS[x.type.dtype.kind].format(p=p), "callee": e.callee("sort", "sort.int64"),
    }  # fmt: skip
    e.lines.append(_SETTLE.format(**words).lstrip("\n"))
