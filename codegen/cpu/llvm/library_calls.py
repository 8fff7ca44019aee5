"""Calls of native functions in emitted LLVM code: the loops of NumPy's and SciPy's ufuncs, BLAS and LAPACK.

Their addresses are arguments of the kernel.

Calls of NumPy's pocketfft in emitted LLVM code.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import element, literal, wide
from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType
from pullback.ir.ops.library.routines import Library, gemm


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


def fourier_lines(e: FunctionWriter, i: Instruction) -> None:
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
