"""Matrix products split into parts, as LLVM IR text: part of the worker pool's module.

``gemm(state, routine, bytes, arguments)`` calls a routine of the Fortran library for each part of c (m x n) = a b,
column-major. The arguments are addresses, of 64-bit integers, while the library's integers have 32 bits: no part has a longer
axis, K included, and if the leading dimension of a matrix exceeds 32 bits, a part has one column of it. The parts depend on
the extents alone, never on the number of threads.
"""

from __future__ import annotations

GEMM = ("ta", "tb", "m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc")
"""The arguments of a gemm of the Fortran library. ``alpha`` is 1: later blocks of K are accumulated by passing it as ``beta``."""
MAX_INT = 2**31 - 1
"""The largest integer of the library."""

# (multiplications, log): such products and larger ones have 4**log parts, if log > 1 along both axes unless one is short.
PARTS_BY_SIZE = ((1 << 36, 3), (1 << 30, 2), (1 << 20, 1))
SHORT, GRAIN, LONG = 256, 16, 1 << 23
"""SHORT: an extent below which a product is split along the other axis only. GRAIN: the lengths of parts are multiples of it.
LONG: the multiplications from which sleeping threads are woken even for few parts."""

CONTEXT = ("routine", "bytes", "arguments", "down", "high", "long", "deep")
"""The context of a part. ``down`` is the number of parts along m; ``high``, ``long`` and ``deep`` are a part's rows, its
columns and its block of K."""
INTEGERS = ("m", "n", "k", "lda", "ldb", "ldc")


def _argument(name: str) -> str:
    """Return lines that load the address of an argument."""
    return f"%{name}.at = getelementptr ptr, ptr %arguments, i64 {GEMM.index(name)}\n  %{name} = load ptr, ptr %{name}.at"


def _integer(name: str) -> str:
    """Return lines that load an integer argument."""
    return f"{_argument(name)}\n  %{name}.64 = load i64, ptr %{name}"


def _not_transposed(name: str) -> str:
    """Return lines that test whether an operand is not transposed."""
    return f"{_argument(name)}\n  %{name}.letter = load i8, ptr %{name}\n  %{name}.plain = icmp eq i8 %{name}.letter, {ord('N')}"


def _lines(*texts: str) -> str:
    return "\n  ".join(texts)


def _split(name: str, extent: str, log: str, most: str) -> str:
    """Return lines that compute the length of a part of an extent split into 2^log parts, at most ``most``, and the number of
    parts."""
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


def _load_context(name: str, t: str = "i64") -> str:
    at = f"%{name}.at = getelementptr i64, ptr %context, i64 {CONTEXT.index(name)}"
    return f"{at}\n  %{name} = load {t}, ptr %{name}.at"


def _store_context(name: str, value: str, t: str = "i64") -> str:
    at = f"%{name}.at = getelementptr i64, ptr %context, i64 {CONTEXT.index(name)}"
    return f"{at}\n  store {t} {value}, ptr %{name}.at"


def _store_i32(name: str, value: str) -> str:
    """Return lines that store an integer for the library, as 32 bits."""
    return f"%{name}.32 = trunc i64 {value} to i32\n  store i32 %{name}.32, ptr %{name}.slot"


def _store_leading_dimension(name: str) -> str:
    """Return lines that store a leading dimension for the library, clamped to 32 bits; a clamped one is not read."""
    return f"%{name}.own = call i64 @llvm.smin.i64(i64 %{name}.64, i64 {MAX_INT})\n  {_store_i32(name, f'%{name}.own')}"


def source(small: int) -> str:
    """Return the functions, which call ``share_out``, ``enter`` and ``leave``. A product of at most ``small`` parts may run on
    the caller."""
    addresses = {**{name: f"%{name}.slot" for name in INTEGERS}, **{name: f"%{name}.part" for name in "abc"}, "beta": "%onto"}
    call = ", ".join(f"ptr {addresses.get(name, f'%{name}')}" for name in GEMM)
    block = MAX_INT - MAX_INT % GRAIN or MAX_INT
    sizes = "\n  ".join(
        f"%big{k} = icmp sge i64 %products, {least}\n  %log{k} = select i1 %big{k}, i64 {log}, i64 {f'%log{k - 1}' if k else 0}"
        for k, (least, log) in enumerate(reversed(PARTS_BY_SIZE))
    )
    last = f"%log{len(PARTS_BY_SIZE) - 1}"
    return f"""
define internal i64 @part_of_gemm(ptr %context, i64 %chunk) nounwind {{
entry:
  {_load_context("routine", "ptr")}
  {_load_context("bytes")}
  {_load_context("arguments", "ptr")}
  {_load_context("down")}
  {_load_context("high")}
  {_load_context("long")}
  {_load_context("deep")}
  {_lines(*map(_integer, INTEGERS))}
  {_lines(_not_transposed("ta"), _not_transposed("tb"))}
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
  {_lines(_store_i32("m", "%m.own"), _store_i32("n", "%n.own"), *map(_store_leading_dimension, ("lda", "ldb", "ldc")))}
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
  {_store_i32("k", "%k.own")}
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
  {_lines(*map(_integer, INTEGERS))}
  {_lines(_not_transposed("ta"), _not_transposed("tb"))}
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
  %a.apart = icmp sgt i64 %lda.64, {MAX_INT}
  %b.apart = icmp sgt i64 %ldb.64, {MAX_INT}
  %c.apart = icmp sgt i64 %ldc.64, {MAX_INT}
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
  {_split("high", "%m.64", "%m.log", "%high.most")}
  {_split("long", "%n.64", "%n.log", "%long.most")}
  %context = alloca [{len(CONTEXT)} x i64]
  {_store_context("routine", "%routine", "ptr")}
  {_store_context("bytes", "%bytes")}
  {_store_context("arguments", "%arguments", "ptr")}
  {_store_context("down", "%high.count")}
  {_store_context("high", "%high")}
  {_store_context("long", "%long")}
  {_store_context("deep", "%deep")}
  %chunks = mul i64 %high.count, %long.count
  call void @pullback_crew_enter(ptr %state)
  %is.long = icmp sge i64 %products, {LONG}
  %small = select i1 %is.long, i64 0, i64 {small}
  %status = call i64 @share_out(ptr %state, ptr @part_of_gemm, ptr %context, i64 %chunks, i64 %small)
  call void @pullback_crew_leave(ptr %state)
  ret void
}}
"""
