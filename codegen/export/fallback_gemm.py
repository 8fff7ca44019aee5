"""Emit a matrix product for callers without BLAS, as LLVM IR text: with the interface of the Fortran library; alpha is 1.

A block of rows of one column of c stays in registers while the products along K are added, in order. It is correct for all
extents, and plain: a library that packs its operands is several times as fast if they are large.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.lanes import element
from pullback.ir.core.types import F32, F64, DType

ROUTINES: dict[str, DType] = {"blas.dgemm": F64, "blas.sgemm": F32}
"""The routines that have a product here."""
ROWS = 4
"""Row vectors per block."""
VECTOR = 64
"""Bytes of a vector."""


def own_name(routine: str) -> str:
    """Return the symbol of the product that replaces a routine."""
    return f"own_{routine.rpartition('.')[2]}"


def source(routine: str) -> str:
    """Return the product that replaces a routine, with its declarations."""
    dtype = ROUTINES[routine]
    t, lanes = element(dtype), VECTOR // dtype.bytes
    v, mask, addresses = f"<{lanes} x {t}>", f"<{lanes} x i1>", f"<{lanes} x ptr>"
    suffix = f"v{lanes}f{dtype.bits}"
    step = ROWS * lanes
    integers = ("m", "n", "k", "lda", "ldb", "ldc")
    read = [f"  %{x}.32 = load i32, ptr %{x}.at\n  %{x} = sext i32 %{x}.32 to i64" for x in integers]
    count = ", ".join(f"i64 {lane}" for lane in range(lanes))
    rows = [
        f"""  %row{r} = add i64 %i, {r * lanes}
  %first{r} = insertelement <{lanes} x i64> poison, i64 %row{r}, i64 0
  %all{r} = shufflevector <{lanes} x i64> %first{r}, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer
  %rows{r} = add <{lanes} x i64> %all{r}, <{count}>
  %mask{r} = icmp slt <{lanes} x i64> %rows{r}, %ms
  %apart{r} = mul <{lanes} x i64> %rows{r}, %ais
  %c{r} = getelementptr {t}, ptr %column, i64 %row{r}
  %before{r} = call {v} @llvm.masked.load.{suffix}.p0(ptr %c{r}, i32 {dtype.bytes}, {mask} %mask{r}, {v} zeroinitializer)
  %start{r} = select i1 %adds, {v} %before{r}, {v} zeroinitializer"""
        for r in range(ROWS)
    ]
    loops = [_k_loop(kind, t, v, mask, addresses, suffix, lanes, dtype.bytes) for kind in ("dense", "spread")]
    joined = [f"  %sum{r} = phi {v} [ %acc{r}.dense, %head.dense ], [ %acc{r}.spread, %head.spread ]" for r in range(ROWS)]
    stores = [
        f"  call void @llvm.masked.store.{suffix}.p0({v} %sum{r}, ptr %c{r}, i32 {dtype.bytes}, {mask} %mask{r})"
        for r in range(ROWS)
    ]
    splats = [
        f"""  %{x}.first = insertelement <{lanes} x i64> poison, i64 %{y}, i64 0
  %{x} = shufflevector <{lanes} x i64> %{x}.first, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer"""
        for x, y in (("ms", "m"), ("ais", "ai"))
    ]
    return f"""
define internal void @{own_name(routine)}(ptr %ta, ptr %tb, ptr %m.at, ptr %n.at, ptr %k.at, ptr %alpha, ptr %a, ptr %lda.at,
    ptr %b, ptr %ldb.at, ptr %beta.at, ptr %c, ptr %ldc.at) nounwind {{
entry:
{chr(10).join(read)}
  %ta.letter = load i8, ptr %ta
  %tb.letter = load i8, ptr %tb
  %ta.plain = icmp eq i8 %ta.letter, {ord("N")}
  %tb.plain = icmp eq i8 %tb.letter, {ord("N")}
  %ai = select i1 %ta.plain, i64 1, i64 %lda
  %al = select i1 %ta.plain, i64 %lda, i64 1
  %bl = select i1 %tb.plain, i64 1, i64 %ldb
  %bj = select i1 %tb.plain, i64 %ldb, i64 1
  %beta = load {t}, ptr %beta.at
  %adds = fcmp une {t} %beta, 0.0
{chr(10).join(splats)}
  br label %columns
columns:
  %j = phi i64 [ 0, %entry ], [ %j.next, %next.column ]
  %more.columns = icmp slt i64 %j, %n
  br i1 %more.columns, label %one.column, label %done
one.column:
  %c.far = mul i64 %j, %ldc
  %column = getelementptr {t}, ptr %c, i64 %c.far
  %b.far = mul i64 %j, %bj
  %b.column = getelementptr {t}, ptr %b, i64 %b.far
  br label %blocks
blocks:
  %i = phi i64 [ 0, %one.column ], [ %i.next, %after ]
  %more.rows = icmp slt i64 %i, %m
  br i1 %more.rows, label %block, label %next.column
block:
{chr(10).join(rows)}
  br i1 %ta.plain, label %head.dense, label %head.spread
{chr(10).join(loops)}
after:
{chr(10).join(joined)}
{chr(10).join(stores)}
  %i.next = add i64 %i, {step}
  br label %blocks
next.column:
  %j.next = add i64 %j, 1
  br label %columns
done:
  ret void
}}
declare {v} @llvm.masked.load.{suffix}.p0(ptr, i32, {mask}, {v})
declare void @llvm.masked.store.{suffix}.p0({v}, ptr, i32, {mask})
declare {v} @llvm.masked.gather.{suffix}.{suffix[: suffix.index("f")]}p0({addresses}, i32, {mask}, {v})
declare {v} @llvm.fmuladd.{suffix}({v}, {v}, {v})
"""


def _k_loop(kind: str, t: str, v: str, mask: str, addresses: str, suffix: str, lanes: int, size: int) -> str:
    """Return the loop over K, where the rows of a are contiguous ("dense") or strided ("spread")."""
    phis, body = [], []
    for r in range(ROWS):
        phis.append(f"  %acc{r}.{kind} = phi {v} [ %start{r}, %block ], [ %next{r}.{kind}, %body.{kind} ]")
        if kind == "dense":
            body += [
                f"  %at{r}.{kind} = getelementptr {t}, ptr %terms.{kind}, i64 %row{r}",
                f"  %a{r}.{kind} = call {v} @llvm.masked.load.{suffix}.p0(ptr %at{r}.{kind}, i32 {size}, {mask} %mask{r}, "
                f"{v} zeroinitializer)",
            ]
        else:
            gather = f"@llvm.masked.gather.{suffix}.{suffix[: suffix.index('f')]}p0"
            body += [
                f"  %at{r}.{kind} = getelementptr {t}, ptr %terms.{kind}, <{lanes} x i64> %apart{r}",
                f"  %a{r}.{kind} = call {v} {gather}({addresses} %at{r}.{kind}, i32 {size}, {mask} %mask{r}, "
                f"{v} zeroinitializer)",
            ]
        body.append(
            f"  %next{r}.{kind} = call {v} @llvm.fmuladd.{suffix}({v} %a{r}.{kind}, {v} %factor.{kind}, {v} %acc{r}.{kind})"
        )
    return f"""head.{kind}:
  %l.{kind} = phi i64 [ 0, %block ], [ %l.next.{kind}, %body.{kind} ]
{chr(10).join(phis)}
  %more.{kind} = icmp slt i64 %l.{kind}, %k
  br i1 %more.{kind}, label %body.{kind}, label %after
body.{kind}:
  %a.far.{kind} = mul i64 %l.{kind}, %al
  %terms.{kind} = getelementptr {t}, ptr %a, i64 %a.far.{kind}
  %b.far.{kind} = mul i64 %l.{kind}, %bl
  %b.at.{kind} = getelementptr {t}, ptr %b.column, i64 %b.far.{kind}
  %b.value.{kind} = load {t}, ptr %b.at.{kind}
  %b.first.{kind} = insertelement {v} poison, {t} %b.value.{kind}, i64 0
  %factor.{kind} = shufflevector {v} %b.first.{kind}, {v} poison, <{lanes} x i32> zeroinitializer
{chr(10).join(body)}
  %l.next.{kind} = add i64 %l.{kind}, 1
  br label %head.{kind}"""
