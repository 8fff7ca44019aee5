"""Matrix products in parts, as LLVM IR text: part of the threads' module (``crew``).

``gemm(state, routine, bytes, arguments)`` calls a routine of the Fortran library for each part of c (m x n) = a b, by columns.
The arguments are addresses, of integers of 64 bits, while the library's have 32: no part has a longer axis, what is summed
included, and where the columns of a matrix lie further apart than the library can say, a part has one column of it. The parts
depend on the extents alone, never on the number of threads.
"""

from __future__ import annotations

GEMM = ("ta", "tb", "m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc")
"""The arguments of a product of the Fortran library. ``alpha`` is 1: later terms are added with it as ``beta``."""
MOST = 2**31 - 1
"""The largest integer of the library."""

# A product of so many multiplications is cut in so many parts; those in more than 4 along both axes, unless one is short.
PRODUCTS = ((1 << 36, 3), (1 << 30, 2), (1 << 20, 1))
SHORT, GRAIN, LONG = 256, 16, 1 << 23

CONTEXT = ("routine", "bytes", "arguments", "down", "high", "long", "deep")
"""What a part is told: how many parts lie below one another, and a part's rows, columns and terms at once."""
INTEGERS = ("m", "n", "k", "lda", "ldb", "ldc")


def _argument(name: str) -> str:
    """The address of an argument, as a line."""
    return f"%{name}.at = getelementptr ptr, ptr %arguments, i64 {GEMM.index(name)}\n  %{name} = load ptr, ptr %{name}.at"


def _number(name: str) -> str:
    """The integer that an argument is, as lines."""
    return f"{_argument(name)}\n  %{name}.64 = load i64, ptr %{name}"


def _plain(name: str) -> str:
    """Whether an operand is not transposed, as lines."""
    return f"{_argument(name)}\n  %{name}.letter = load i8, ptr %{name}\n  %{name}.plain = icmp eq i8 %{name}.letter, {ord('N')}"


def _lines(*texts: str) -> str:
    return "\n  ".join(texts)


def _shape(name: str, extent: str, log: str, most: str) -> str:
    """The length of a part of an extent that is cut in 2^log, but for parts of more than ``most``, and their number, as lines."""
    return f"""%{name}.parts = shl i64 1, {log}
  %{name}.over = add i64 {extent}, %{name}.parts
  %{name}.less = sub i64 %{name}.over, 1
  %{name}.each = lshr i64 %{name}.less, {log}
  %{name}.more = add i64 %{name}.each, {GRAIN - 1}
  %{name}.even = and i64 %{name}.more, {-GRAIN}
  %{name}.some = call i64 @llvm.smax.i64(i64 %{name}.even, i64 1)
  %{name} = call i64 @llvm.smin.i64(i64 %{name}.some, i64 {most})
  %{name}.reach = add i64 {extent}, %{name}
  %{name}.last = sub i64 %{name}.reach, 1
  %{name}.count = udiv i64 %{name}.last, %{name}"""


def _of_context(name: str, t: str = "i64") -> str:
    at = f"%{name}.at = getelementptr i64, ptr %context, i64 {CONTEXT.index(name)}"
    return f"{at}\n  %{name} = load {t}, ptr %{name}.at"


def _put(name: str, value: str, t: str = "i64") -> str:
    at = f"%{name}.at = getelementptr i64, ptr %context, i64 {CONTEXT.index(name)}"
    return f"{at}\n  store {t} {value}, ptr %{name}.at"


def _narrow(name: str, value: str) -> str:
    """An integer for the library, in its slot."""
    return f"%{name}.32 = trunc i64 {value} to i32\n  store i32 %{name}.32, ptr %{name}.slot"


def _spread(name: str) -> str:
    """The distance of columns for the library, in its slot; what it cannot say, it does not read."""
    return f"%{name}.own = call i64 @llvm.smin.i64(i64 %{name}.64, i64 {MOST})\n  {_narrow(name, f'%{name}.own')}"


def source(small: int) -> str:
    """The functions; ``share_out``, ``enter`` and ``leave`` are around them. ``small`` parts may stay with the caller."""
    given = {**{name: f"%{name}.slot" for name in INTEGERS}, **{name: f"%{name}.part" for name in "abc"}, "beta": "%onto"}
    call = ", ".join(f"ptr {given.get(name, f'%{name}')}" for name in GEMM)
    block = MOST - MOST % GRAIN or MOST
    sizes = "\n  ".join(
        f"%big{k} = icmp sge i64 %products, {least}\n  %log{k} = select i1 %big{k}, i64 {log}, i64 {f'%log{k - 1}' if k else 0}"
        for k, (least, log) in enumerate(reversed(PRODUCTS))
    )
    last = f"%log{len(PRODUCTS) - 1}"
    return f"""
define internal i64 @part_of_gemm(ptr %context, i64 %chunk) nounwind {{
entry:
  {_of_context("routine", "ptr")}
  {_of_context("bytes")}
  {_of_context("arguments", "ptr")}
  {_of_context("down")}
  {_of_context("high")}
  {_of_context("long")}
  {_of_context("deep")}
  {_lines(*map(_number, INTEGERS))}
  {_lines(_plain("ta"), _plain("tb"))}
  {_lines(*map(_argument, ("alpha", "a", "b", "beta", "c")))}
  {_lines(*(f"%{name}.slot = alloca i32" for name in INTEGERS))}
  %row = urem i64 %chunk, %down
  %column = udiv i64 %chunk, %down
  %i = mul i64 %row, %high
  %j = mul i64 %column, %long
  %i.left = sub i64 %m.64, %i
  %j.left = sub i64 %n.64, %j
  %m.own = call i64 @llvm.smin.i64(i64 %i.left, i64 %high)
  %n.own = call i64 @llvm.smin.i64(i64 %j.left, i64 %long)
  {_lines(_narrow("m", "%m.own"), _narrow("n", "%n.own"), *map(_spread, ("lda", "ldb", "ldc")))}
  %a.i = select i1 %ta.plain, i64 1, i64 %lda.64
  %a.l = select i1 %ta.plain, i64 %lda.64, i64 1
  %b.l = select i1 %tb.plain, i64 1, i64 %ldb.64
  %b.j = select i1 %tb.plain, i64 %ldb.64, i64 1
  %a.row = mul i64 %i, %a.i
  %b.column = mul i64 %j, %b.j
  %c.column = mul i64 %j, %ldc.64
  %c.place = add i64 %c.column, %i
  %c.bytes = mul i64 %c.place, %bytes
  %c.part = getelementptr i8, ptr %c, i64 %c.bytes
  br label %some
some:
  %l = phi i64 [ 0, %entry ], [ %l.next, %some ]
  %onto = phi ptr [ %beta, %entry ], [ %alpha, %some ]
  %l.left = sub i64 %k.64, %l
  %k.own = call i64 @llvm.smin.i64(i64 %l.left, i64 %deep)
  {_narrow("k", "%k.own")}
  %a.far = mul i64 %l, %a.l
  %b.far = mul i64 %l, %b.l
  %a.place = add i64 %a.row, %a.far
  %b.place = add i64 %b.column, %b.far
  %a.bytes = mul i64 %a.place, %bytes
  %b.bytes = mul i64 %b.place, %bytes
  %a.part = getelementptr i8, ptr %a, i64 %a.bytes
  %b.part = getelementptr i8, ptr %b, i64 %b.bytes
  call void %routine({call})
  %l.next = add i64 %l, %deep
  %more = icmp slt i64 %l.next, %k.64
  br i1 %more, label %some, label %done
done:
  ret i64 0
}}

define void @pullback_crew_gemm(ptr %state, ptr %routine, i64 %bytes, ptr %arguments) nounwind {{
  {_lines(*map(_number, INTEGERS))}
  {_lines(_plain("ta"), _plain("tb"))}
  %area = mul i64 %m.64, %n.64
  %products = mul i64 %area, %k.64
  {sizes}
  %both = shl i64 {last}, 1
  %is.high = icmp sgt i64 %m.64, %n.64
  %least = call i64 @llvm.smin.i64(i64 %m.64, i64 %n.64)
  %narrow = icmp slt i64 %least, {SHORT}
  %few = icmp sle i64 {last}, 1
  %one.way = or i1 %narrow, %few
  %m.one = select i1 %is.high, i64 %both, i64 0
  %n.one = select i1 %is.high, i64 0, i64 %both
  %m.log = select i1 %one.way, i64 %m.one, i64 {last}
  %n.log = select i1 %one.way, i64 %n.one, i64 {last}
  %a.apart = icmp sgt i64 %lda.64, {MOST}
  %b.apart = icmp sgt i64 %ldb.64, {MOST}
  %c.apart = icmp sgt i64 %ldc.64, {MOST}
  %a.terms = and i1 %a.apart, %ta.plain
  %ta.turned = xor i1 %ta.plain, true
  %a.rows = and i1 %a.apart, %ta.turned
  %b.columns = and i1 %b.apart, %tb.plain
  %tb.turned = xor i1 %tb.plain, true
  %b.terms = and i1 %b.apart, %tb.turned
  %terms.apart = or i1 %a.terms, %b.terms
  %columns.apart = or i1 %b.columns, %c.apart
  %high.most = select i1 %a.rows, i64 1, i64 {block}
  %long.most = select i1 %columns.apart, i64 1, i64 {block}
  %deep = select i1 %terms.apart, i64 1, i64 {block}
  {_shape("high", "%m.64", "%m.log", "%high.most")}
  {_shape("long", "%n.64", "%n.log", "%long.most")}
  %context = alloca [{len(CONTEXT)} x i64]
  {_put("routine", "%routine", "ptr")}
  {_put("bytes", "%bytes")}
  {_put("arguments", "%arguments", "ptr")}
  {_put("down", "%high.count")}
  {_put("high", "%high")}
  {_put("long", "%long")}
  {_put("deep", "%deep")}
  %chunks = mul i64 %high.count, %long.count
  call void @pullback_crew_enter(ptr %state)
  %is.long = icmp sge i64 %products, {LONG}
  %small = select i1 %is.long, i64 0, i64 {small}
  %status = call i64 @share_out(ptr %state, ptr @part_of_gemm, ptr %context, i64 %chunks, i64 %small)
  call void @pullback_crew_leave(ptr %state)
  ret void
}}
"""
