"""Emits calls of native functions: loops of NumPy's and SciPy's ufuncs, BLAS, LAPACK, pocketfft and NumPy's sorts.

Their addresses are arguments of the kernel. NumPy's argsort is not stable: the positions of equal elements are sorted after it.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import element, literal, wide
from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType
from pullback.ir.ops.library.routines import Library, gemm
from pullback.ir.ops.library.sort import ArgsortRow, ResolveTies, SortRow


def ufunc(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """A call of a ufunc's loop on all lanes, through the stack; ``name`` as in the spelling of the op."""
    letter = dtype.numpy.char
    name, _, which = name.partition(" ")
    place, results = map(int, which.split("/")) if which else (0, 1)
    types = f"{letter * len(texts)}->{letter * results}"
    function, data = (e.native("ufunc", name, types, part) for part in ("function", "data"))
    t = wide(element(dtype), width)
    buffers = [e.slot(t) for _ in range(len(texts) + results)]
    pointers, steps, count = e.slot(f"[{len(buffers)} x ptr]"), e.slot(f"[{len(buffers)} x i64]"), e.slot("i64")
    for text, buffer in zip(texts, buffers, strict=False):
        e.line(f"store {t} {text}, ptr {buffer}")
    for k, buffer in enumerate(buffers):
        e.line(f"store ptr {buffer}, ptr {e.let(f'getelementptr ptr, ptr {pointers}, i64 {k}')}")
        e.line(f"store i64 {dtype.bytes}, ptr {e.let(f'getelementptr i64, ptr {steps}, i64 {k}')}")
    e.line(f"store i64 {width}, ptr {count}")
    callee, context = (e.let(f"inttoptr i64 {v} to ptr") for v in (function, data))
    e.line(f"call void {callee}(ptr {pointers}, ptr {count}, ptr {steps}, ptr {context})")
    return e.let(f"load {t}, ptr {buffers[len(texts) + place]}")


def library(e: FunctionWriter, i: Instruction) -> None:
    """A call of a routine of BLAS or LAPACK, whose arguments are all addresses."""
    op = i.op
    assert isinstance(op, Library)
    places = [e.places[v] for v in i.operands]
    dtype = places[0].type.dtype
    pointers = []
    refs = [v.type for v in i.operands]
    integer = int64 if op is gemm else int32
    pairs = op.pairs(refs)
    for kind, *what in op.arguments({**i.params, "complex": bool(pairs)}):
        match kind:
            case "letter":
                pointers.append(stored(e, "i8", letter(e, what[0], *(places[k] for k in what[1:]))))
            case "number":
                pointers.append(number(e, what[0], dtype, bool(pairs)))
            case "integer":
                pointers.append(stored(e, "i32", str(what[0])))
            case "extent":
                pointers.append(integer(e, places[what[0]].extents[what[1]].text))
            case "lead":
                pointers.append(integer(e, at_least_one(e, lead(e, places[what[0]], op.ranks[what[0]]))))
            case "product":
                total = "1"
                for extent in places[what[0]].extents[: op.ranks[what[0]]]:
                    total = e.let(f"mul i64 {total}, {extent.text}")
                pointers.append(int32(e, at_least_one(e, total)))
            case "ref":
                pointers.append(places[what[0]].pointer)
    callee = e.callee("gemm" if op is gemm else "library", op.symbol(dtype, bool(pairs)))
    threads = e.let(f"inttoptr i64 {e.native('threads')} to ptr")
    if op is gemm:
        arguments = e.slot(f"[{len(pointers)} x ptr]")
        for k, pointer in enumerate(pointers):
            e.line(f"store ptr {pointer}, ptr {e.let(f'getelementptr ptr, ptr {arguments}, i64 {k}')}")
        size = dtype.bytes * (2 if pairs else 1)
        e.line(f"call void {service(e, threads, 'gemm')}(ptr {threads}, ptr {callee}, i64 {size}, ptr {arguments})")
        return
    e.line(f"call void {service(e, threads, 'enter')}(ptr {threads})")
    e.line(f"call void {callee}({', '.join(f'ptr {p}' for p in pointers)})")
    e.line(f"call void {service(e, threads, 'leave')}(ptr {threads})")


def letter(e: FunctionWriter, text: str, place: Place | None = None) -> str:
    """The letter that says whether an operand is transposed, as it is in memory."""
    if place is None or not place.strides:
        return str(ord(text))
    turned = str(ord("N" if text == "T" else "T"))
    return e.let(f"select i1 {has_rows(e, place)}, i8 {ord(text)}, i8 {turned}")


def lead(e: FunctionWriter, place: Place, rank: int) -> str:
    """How many elements apart the rows of a matrix are, or the columns of a strided one that has none."""
    if not place.strides:
        return place.extents[rank - 1].text
    rows, columns = (stride.text for stride in place.strides)
    apart = e.let(f"select i1 {has_rows(e, place)}, i64 {rows}, i64 {columns}")
    return e.let(f"ashr exact i64 {apart}, {place.type.dtype.bytes.bit_length() - 1}")


def has_rows(e: FunctionWriter, place: Place) -> str:
    return e.let(f"icmp eq i64 {place.strides[1].text}, {place.type.dtype.bytes}")


def service(e: FunctionWriter, threads: str, name: str) -> str:
    """A function of the threads' table."""
    return e.let(f"load ptr, ptr {e.let(f'getelementptr ptr, ptr {threads}, i64 {THREADS.index(name)}')}")


def number(e: FunctionWriter, value: float, dtype: DType, is_complex: bool) -> str:
    """A real number on the stack, with an imaginary part if it is to be complex; the address."""
    if not is_complex:
        return stored(e, element(dtype), literal(value, dtype))
    slot = e.slot(f"[2 x {element(dtype)}]")
    for k, part in enumerate((value, 0.0)):
        address = e.let(f"getelementptr {element(dtype)}, ptr {slot}, i64 {k}")
        e.line(f"store {element(dtype)} {literal(part, dtype)}, ptr {address}")
    return slot


def at_least_one(e: FunctionWriter, text: str) -> str:
    return e.intrinsic("i64", "llvm.smax.i64", [("i64", text), ("i64", "1")])


def int64(e: FunctionWriter, text: str) -> str:
    return stored(e, "i64", text)


def int32(e: FunctionWriter, text: str) -> str:
    return stored(e, "i32", e.let(f"trunc i64 {text} to i32"))


def stored(e: FunctionWriter, t: str, text: str) -> str:
    """A value on the stack; the address."""
    slot = e.slot(t)
    e.line(f"store {t} {text}, ptr {slot}")
    return slot


def fft_1d(e: FunctionWriter, i: Instruction) -> None:
    """A call of a loop of pocketfft, a generalized ufunc of values, a factor (1) and results: ``(n),()->(m)``."""
    places, routine, axis = [e.places[v] for v in i.operands], i.params["routine"], i.params["axis"]
    dtype = places[0].type.dtype
    real, whole = ("f", "F") if dtype.name == "f32" else ("d", "D")
    letters = (real if routine[0] == "r" else whole, real if routine == "irfft" else whole)
    kind = f"{letters[0]}{real}->{letters[1]}"
    assert isinstance(i.op, Library)
    function, data = (e.native("ufunc", i.op.routine.format(routine), kind, part) for part in ("function", "data"))
    lengths, across, along, count = [], [], [], "1"
    for place, letter in zip(places, letters, strict=True):
        extents = [x.text for x in place.extents[: place.type.rank - (letter == whole)]]
        size = str(dtype.bytes * (2 if letter == whole else 1))
        is_first, count = axis == 0 and len(extents) > 1, "1"
        for extent in extents[1:] if is_first else extents[:-1]:
            count = e.let(f"mul i64 {count}, {extent}")
        lengths.append(extents[axis])
        across.append(size if is_first else e.let(f"mul i64 {extents[axis]}, {size}"))
        along.append(e.let(f"mul i64 {count}, {size}") if is_first else size)
    one = stored(e, element(dtype), literal(1.0, dtype))
    pointers = table(e, "ptr", [places[0].pointer, one, places[1].pointer])
    dimensions = table(e, "i64", [count, *lengths])
    steps = table(e, "i64", [across[0], "0", across[1], *along])
    callee, context = (e.let(f"inttoptr i64 {v} to ptr") for v in (function, data))
    e.line(f"call void {callee}(ptr {pointers}, ptr {dimensions}, ptr {steps}, ptr {context})")


def table(e: FunctionWriter, t: str, texts: list[str]) -> str:
    """Values side by side on the stack; their address."""
    slot = e.slot(f"[{len(texts)} x {t}]")
    for k, text in enumerate(texts):
        e.line(f"store {t} {text}, ptr {e.let(f'getelementptr {t}, ptr {slot}, i64 {k}')}")
    return slot


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


def resolve_ties(e: FunctionWriter, i: Instruction) -> None:
    """Where ranks without their low bits are equal: sort again, by those."""
    assert isinstance(i.op, ResolveTies)
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
