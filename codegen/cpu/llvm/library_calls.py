"""Emit calls of native functions: loops of NumPy's and SciPy's ufuncs, BLAS, LAPACK, pocketfft and NumPy's sorts.

Their addresses are arguments of the kernel. NumPy's argsort is not stable, so the positions of equal elements are sorted
afterwards.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import element, literal, vector_of
from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType
from pullback.ir.ops.library.routines import Library, gemm
from pullback.ir.ops.library.sort import ArgsortRow, ResolveTies, SortRow


def ufunc(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """Emit a call of a ufunc's loop on all lanes, which are passed through the stack; ``name`` as in the op's template."""
    char = dtype.numpy.char
    name, _, output_text = name.partition(" ")
    output, results = map(int, output_text.split("/")) if output_text else (0, 1)
    types = f"{char * len(texts)}->{char * results}"
    function, data = (e.native("ufunc", name, types, part) for part in ("function", "data"))
    t = vector_of(element(dtype), width)
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
    return e.let(f"load {t}, ptr {buffers[len(texts) + output]}")


def library(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of a BLAS or LAPACK routine, all of whose arguments are passed by address."""
    op = i.op
    assert isinstance(op, Library)
    places = [e.memrefs[v] for v in i.operands]
    dtype = places[0].type.dtype
    pointers = []
    refs = [v.type for v in i.operands]
    integer = int64 if op is gemm else int32
    pairs = op.pairs(refs)
    for kind, *details in op.arguments({**i.params, "complex": bool(pairs)}):
        match kind:
            case "letter":
                pointers.append(on_stack(e, "i8", transpose_flag(e, details[0], *(places[k] for k in details[1:]))))
            case "number":
                pointers.append(scalar_argument(e, details[0], dtype, bool(pairs)))
            case "integer":
                pointers.append(on_stack(e, "i32", str(details[0])))
            case "extent":
                pointers.append(integer(e, places[details[0]].extents[details[1]].text))
            case "lead":
                pointers.append(integer(e, at_least_one(e, leading_dimension(e, places[details[0]], op.ranks[details[0]]))))
            case "product":
                total = "1"
                for extent in places[details[0]].extents[: op.ranks[details[0]]]:
                    total = e.let(f"mul i64 {total}, {extent.text}")
                pointers.append(int32(e, at_least_one(e, total)))
            case "ref":
                pointers.append(places[details[0]].pointer)
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


def transpose_flag(e: FunctionWriter, text: str, memref: MemRef | None = None) -> str:
    """Return the character that says whether an operand is transposed, given its layout in memory."""
    if memref is None or not memref.strides:
        return str(ord(text))
    transposed = str(ord("N" if text == "T" else "T"))
    return e.let(f"select i1 {is_row_major(e, memref)}, i8 {ord(text)}, i8 {transposed}")


def leading_dimension(e: FunctionWriter, memref: MemRef, rank: int) -> str:
    """Return the leading dimension of a matrix: the elements from one row to the next, or one column in a column-major
    operand."""
    if not memref.strides:
        return memref.extents[rank - 1].text
    rows, columns = (stride.text for stride in memref.strides)
    chosen_stride = e.let(f"select i1 {is_row_major(e, memref)}, i64 {rows}, i64 {columns}")
    return e.let(f"ashr exact i64 {chosen_stride}, {memref.type.dtype.bytes.bit_length() - 1}")


def is_row_major(e: FunctionWriter, memref: MemRef) -> str:
    """Return an i1: whether the rows of a strided matrix are contiguous."""
    return e.let(f"icmp eq i64 {memref.strides[1].text}, {memref.type.dtype.bytes}")


def service(e: FunctionWriter, threads: str, name: str) -> str:
    """Load the address of a function from the table of the worker pool."""
    return e.let(f"load ptr, ptr {e.let(f'getelementptr ptr, ptr {threads}, i64 {THREADS.index(name)}')}")


def scalar_argument(e: FunctionWriter, value: float, dtype: DType, is_complex: bool) -> str:
    """Store a real number on the stack, with a zero imaginary part for a complex routine; return its address."""
    if not is_complex:
        return on_stack(e, element(dtype), literal(value, dtype))
    slot = e.slot(f"[2 x {element(dtype)}]")
    for k, part in enumerate((value, 0.0)):
        address = e.let(f"getelementptr {element(dtype)}, ptr {slot}, i64 {k}")
        e.line(f"store {element(dtype)} {literal(part, dtype)}, ptr {address}")
    return slot


def at_least_one(e: FunctionWriter, text: str) -> str:
    """Return the maximum of an i64 and 1."""
    return e.intrinsic("i64", "llvm.smax.i64", [("i64", text), ("i64", "1")])


def int64(e: FunctionWriter, text: str) -> str:
    """Store an i64 on the stack; return its address."""
    return on_stack(e, "i64", text)


def int32(e: FunctionWriter, text: str) -> str:
    """Truncate an i64 to i32 and store it on the stack; return its address."""
    return on_stack(e, "i32", e.let(f"trunc i64 {text} to i32"))


def on_stack(e: FunctionWriter, t: str, text: str) -> str:
    """Store a value on the stack; return its address."""
    slot = e.slot(t)
    e.line(f"store {t} {text}, ptr {slot}")
    return slot


def fft_1d(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of a pocketfft loop, a generalised ufunc of values, a factor (1) and results: ``(n),()->(m)``."""
    places, routine, axis = [e.memrefs[v] for v in i.operands], i.params["routine"], i.params["axis"]
    dtype = places[0].type.dtype
    real_char, complex_char = ("f", "F") if dtype.name == "f32" else ("d", "D")
    letters = (real_char if routine[0] == "r" else complex_char, real_char if routine == "irfft" else complex_char)
    kind = f"{letters[0]}{real_char}->{letters[1]}"
    assert isinstance(i.op, Library)
    function, data = (e.native("ufunc", i.op.routine.format(routine), kind, part) for part in ("function", "data"))
    lengths, across, along, count = [], [], [], "1"
    for memref, letter in zip(places, letters, strict=True):
        extents = [x.text for x in memref.extents[: memref.type.rank - (letter == complex_char)]]
        size = str(dtype.bytes * (2 if letter == complex_char else 1))
        is_first, count = axis == 0 and len(extents) > 1, "1"
        for extent in extents[1:] if is_first else extents[:-1]:
            count = e.let(f"mul i64 {count}, {extent}")
        lengths.append(extents[axis])
        across.append(size if is_first else e.let(f"mul i64 {extents[axis]}, {size}"))
        along.append(e.let(f"mul i64 {count}, {size}") if is_first else size)
    factor = on_stack(e, element(dtype), literal(1.0, dtype))
    pointers = table(e, "ptr", [places[0].pointer, factor, places[1].pointer])
    dimensions = table(e, "i64", [count, *lengths])
    steps = table(e, "i64", [across[0], "0", across[1], *along])
    callee, context = (e.let(f"inttoptr i64 {v} to ptr") for v in (function, data))
    e.line(f"call void {callee}(ptr {pointers}, ptr {dimensions}, ptr {steps}, ptr {context})")


def table(e: FunctionWriter, t: str, texts: list[str]) -> str:
    """Store values in an array on the stack; return its address."""
    slot = e.slot(f"[{len(texts)} x {t}]")
    for k, text in enumerate(texts):
        e.line(f"store {t} {text}, ptr {e.let(f'getelementptr {t}, ptr {slot}, i64 {k}')}")
    return slot


def sort_row(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of NumPy's sort on a slice of a vector: ``int sort(void *first, intp n, void *)``."""
    assert isinstance(i.op, SortRow)
    first, count = (e.env[v].text for v in i.operands[1:])
    row = e.memrefs[i.operands[0]]
    start = e.let(f"getelementptr {element(row.type.dtype)}, ptr {row.pointer}, i64 {first}")
    e.let(f"call i32 {e.callee('sort', i.op.symbol(row.type.dtype))}(ptr {start}, i64 {count}, ptr null)")


def argsort_row(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of NumPy's argsort, ``int argsort(void *row, intp *places, intp n, void *)``, then sort ties, as it is not
    stable."""
    assert isinstance(i.op, ArgsortRow)
    row, places = (e.memrefs[v] for v in i.operands)
    count, dtype = row.extents[0].text, row.type.dtype
    e.let(f"call i32 {e.callee('sort', i.op.symbol(dtype))}(ptr {row.pointer}, ptr {places.pointer}, i64 {count}, ptr null)")
    _settle_ties(e, row.pointer, places.pointer, count, dtype)


def _settle_ties(e: FunctionWriter, row: str, places: str, count: str, dtype: DType) -> None:
    """Emit code that sorts the positions of each run of equal elements."""
    t = element(dtype)
    e.count += 1
    head, body, flush, several, after, done = (f"{name}{e.count}" for name in ("tie", "in", "end", "several", "next", "ties"))
    first, at = on_stack(e, "i64", "0"), on_stack(e, "i64", "1")
    e.line(f"br label %{head}")
    e.label(head)
    k = e.let(f"load i64, ptr {at}")
    e.line(f"br i1 {e.let(f'icmp sle i64 {k}, {count}')}, label %{body}, label %{done}")
    e.label(body)
    is_inside = e.let(f"icmp slt i64 {k}, {count}")
    before = e.let(f"sub i64 {k}, 1")
    current = e.let(f"select i1 {is_inside}, i64 {k}, i64 {before}")
    values = []
    for index in (before, current):
        position = e.let(f"load i64, ptr {e.let(f'getelementptr i64, ptr {places}, i64 {index}')}")
        values.append(e.let(f"load {t}, ptr {e.let(f'getelementptr {t}, ptr {row}, i64 {position}')}"))
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


_KEYS = {
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
"""LLVM text, by kind of dtype, that loads an element and maps it to an integer key in the same order."""
_KEYS["u"] = _KEYS["i"]

_RESOLVE = """
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
"""LLVM text that sorts each run of equal high bits again by the low bits of the keys."""


def resolve_ties(e: FunctionWriter, i: Instruction) -> None:
    """Emit code that sorts, again by their low bits, keys that are equal without these bits."""
    assert isinstance(i.op, ResolveTies)
    x, packed = (e.memrefs[v] for v in i.operands[:2])
    first, count, shift = (e.env[v].text for v in i.operands[2:])
    mask = e.let(f"sub i64 {e.let(f'shl i64 1, {shift}')}, 1")
    e.count += 1
    p = f"settle{e.count}."
    words = {
        "p": p, "start": e.slot("i64"), "first": first, "count": count, "packed": packed.pointer, "shift": shift, "mask": mask,
        "x": x.pointer, "rank": _KEYS[x.type.dtype.kind].format(p=p), "callee": e.callee("sort", "sort.int64"),
    }  # fmt: skip
    e.lines.append(_RESOLVE.format(**words).lstrip("\n"))
