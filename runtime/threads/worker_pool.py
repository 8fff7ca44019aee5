"""The native side of parallel loops: a worker pool that shares out the chunks of a loop, as LLVM IR text.

``run(state, function, context, chunks)`` calls ``function(context, chunk)`` once for each chunk and returns the status of the
lowest chunk that has one, or 0. It may be called from any thread; a caller that finds the pool busy runs its chunks itself,
and so do nested calls. The code calls only the addresses in %state, which are the system's thread library.

Chunks are assigned in contiguous ranges, one per thread, so that a repeated loop finds its data in the same cache; a thread
that is done steals chunks from the others. %gate holds the state of the loop: its low bits count the threads at work, one bit
says that more may enter, and the bits above are the ordinal of the loop. The caller works too, then closes the gate and waits
for the threads inside, never for those that have not entered. An idle thread polls the gate for about 200 microseconds, then
sleeps. Threads use the caller's floating-point mode, so that the treatment of subnormal numbers does not depend on who started
them.

A library routine runs on one thread between ``enter`` and ``leave``: its own threads would compete with ours, and its results
depend on their number. ``gemm`` is a matrix product in parts (``parallel_gemm``). The library's number of threads is restored
as soon as no call is inside.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.text import THREADS, TIERED
from pullback.runtime.threads import blas_region, parallel_gemm
from pullback.runtime.threads.state import INSIDE, OPEN, RANGE, RANGES, at, call
from pullback.runtime.threads.worker_loop import start_stop, ticks, wait_functions, worker

SMALL, PASSES = 4, 7
"""A loop of at most SMALL chunks is small. After one that woke the threads in vain, the next PASSES small loops that find all
threads asleep run on the caller alone."""
SERVICES = (*THREADS, "stop", "acquire", "release")

PROCESSORS = """declare i64 @llvm.x86.rdtsc()
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)"""
DECLARED = """
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def source(is_x86: bool) -> str:
    """Return the module. A pause instruction and the floating-point mode are x86 only."""
    parts = [wait_functions(is_x86), ACQUIRE_RELEASE, _work(), worker(is_x86), start_stop(), SEQUENTIAL, _run(is_x86)]
    return "".join([TIERED, *parts, blas_region.source(), parallel_gemm.source(SMALL), PROCESSORS if is_x86 else "", DECLARED])


ACQUIRE_RELEASE = f"""
define i64 @pullback_crew_acquire(ptr %state) nounwind {{
  {at("busy", "busy")}
  %pair = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  %result = zext i1 %won to i64
  ret i64 %result
}}

define void @pullback_crew_release(ptr %state) nounwind {{
  {at("busy", "busy")}
  store atomic i64 0, ptr %busy release, align 8
  ret void
}}
"""
"""The functions that acquire and release the pool."""

SEQUENTIAL = """
define internal i64 @alone(ptr %function, ptr %context, i64 %chunks) nounwind {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %first = phi i64 [ 0, %entry ], [ %first.next, %body ]
  %more = icmp slt i64 %k, %chunks
  br i1 %more, label %body, label %done
body:
  %status = call i64 %function(ptr %context, i64 %k)
  %none = icmp eq i64 %first, 0
  %first.next = select i1 %none, i64 %status, i64 %first
  %k.next = add i64 %k, 1
  br label %head
done:
  ret i64 %first
}
"""
"""The function that runs all chunks on the calling thread."""


def _work() -> str:
    """Return the function that runs a thread's part of a loop."""
    return f"""
; The chunks of one's own range, then those that others have left. Statuses join in %failure.
define internal void @work(ptr %state, i64 %id) nounwind {{
entry:
  {at("function.at", "function")}
  %function = load ptr, ptr %function.at
  {at("context.at", "context")}
  %context = load ptr, ptr %context.at
  {at("members.at", "members")}
  %members = load i64, ptr %members.at
  {at("failure", "failure")}
  br label %visit
visit:
  %k = phi i64 [ 0, %entry ], [ %k.next, %spent ]
  %more = icmp slt i64 %k, %members
  br i1 %more, label %range, label %done
range:
  %sum = add i64 %id, %k
  %owner = urem i64 %sum, %members
  %offset = mul i64 %owner, {RANGE}
  %at = add i64 %offset, {RANGES}
  %next = getelementptr i8, ptr %state, i64 %at
  %end.at = getelementptr i64, ptr %next, i64 1
  %end = load i64, ptr %end.at
  br label %look
look:
  %seen = load atomic i64, ptr %next monotonic, align 8
  %any = icmp slt i64 %seen, %end
  br i1 %any, label %take, label %spent
take:
  %chunk = atomicrmw add ptr %next, i64 1 monotonic, align 8
  %mine = icmp slt i64 %chunk, %end
  br i1 %mine, label %call, label %spent
call:
  %status = call i64 %function(ptr %context, i64 %chunk)
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %note, label %look
note:
  %high = shl i64 %chunk, 32
  %both = or i64 %high, %status
  %before = atomicrmw umin ptr %failure, i64 %both monotonic, align 8
  br label %look
spent:
  %k.next = add i64 %k, 1
  br label %visit
done:
  ret void
}}
"""


def _run(is_x86: bool) -> str:
    """Return the functions that run a loop in parallel, from the caller's side."""
    keep = "call void @llvm.x86.sse.stmxcsr(ptr %mode)" if is_x86 else ""
    return f"""
define i64 @pullback_crew_run(ptr %state, ptr %function, ptr %context, i64 %chunks) nounwind {{
  %status = call i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 {SMALL})
  ret i64 %status
}}

define internal i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 %most) nounwind {{
entry:
  {at("threads.at", "threads")}
  %threads = load atomic i64, ptr %threads.at monotonic, align 8
  %several = icmp sgt i64 %threads, 1
  %many = icmp sgt i64 %chunks, 1
  %worth = and i1 %several, %many
  br i1 %worth, label %try, label %single
try:
  %held = call i64 @pullback_crew_acquire(ptr %state)
  %free = icmp ne i64 %held, 0
  br i1 %free, label %open, label %single
single:
  %alone = call i64 @alone(ptr %function, ptr %context, i64 %chunks)
  ret i64 %alone
open:
  {at("started.at", "started")}
  %started = load i64, ptr %started.at
  %all = add i64 %started, 1
  %missing = icmp slt i64 %all, %threads
  br i1 %missing, label %hire, label %count
hire:
  call void @start(ptr %state, i64 %threads)
  br label %prepare
count:
  ; Where waking a thread takes as long as a small loop, most of these pass while all are asleep.
  {at("asleep.at", "sleeping")}
  %dozing = load atomic i64, ptr %asleep.at monotonic, align 8
  %nobody = icmp sge i64 %dozing, %started
  %small = icmp sle i64 %chunks, %most
  %dear = and i1 %nobody, %small
  br i1 %dear, label %weigh, label %prepare
weigh:
  {at("passes.at", "passes")}
  %passes = load i64, ptr %passes.at
  %goes = icmp eq i64 %passes, 0
  br i1 %goes, label %prepare, label %pass
pass:
  %fewer = sub i64 %passes, 1
  store i64 %fewer, ptr %passes.at
  call void @pullback_crew_release(ptr %state)
  br label %single
prepare:
  {at("function.at", "function")}
  store ptr %function, ptr %function.at
  {at("context.at", "context")}
  store ptr %context, ptr %context.at
  {at("failure", "failure")}
  store atomic i64 -1, ptr %failure monotonic, align 8
  {at("members.at", "members")}
  store i64 %threads, ptr %members.at
  {at("mode", "mode")}
  {keep}
  {at("dispatched.at", "dispatched")}
  %dispatched = load i64, ptr %dispatched.at
  %counted = add i64 %dispatched, 1
  store i64 %counted, ptr %dispatched.at
  br label %deal
deal:
  %p = phi i64 [ 0, %prepare ], [ %p.next, %deal ]
  %first = phi i64 [ 0, %prepare ], [ %last, %deal ]
  %p.next = add i64 %p, 1
  %scaled = mul i64 %p.next, %chunks
  %last = udiv i64 %scaled, %threads
  %offset = mul i64 %p, {RANGE}
  %at = add i64 %offset, {RANGES}
  %next = getelementptr i8, ptr %state, i64 %at
  store atomic i64 %first, ptr %next monotonic, align 8
  %end.at = getelementptr i64, ptr %next, i64 1
  store i64 %last, ptr %end.at
  %dealing = icmp slt i64 %p.next, %threads
  br i1 %dealing, label %deal, label %publish
publish:
  {at("where.at", "where")}
  %where = load ptr, ptr %where.at
  %known = icmp ne ptr %where, null
  br i1 %known, label %ask, label %post
ask:
  %here = call i32 %where()
  %place = sext i32 %here to i64
  {at("processor", "processor")}
  store atomic i64 %place, ptr %processor monotonic, align 8
  br label %post
post:
  {at("gate", "gate")}
  %old = load atomic i64, ptr %gate monotonic, align 8
  %earlier = lshr i64 %old, 16
  %number = add i64 %earlier, 1
  %shifted = shl i64 %number, 16
  %opened = or i64 %shifted, {OPEN}
  %was = atomicrmw xchg ptr %gate, i64 %opened seq_cst, align 8
  {at("sleeping", "sleeping")}
  %sleepers = load atomic i64, ptr %sleeping seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %call, label %share
call:
  call void @wake(ptr %state)
  br label %share
share:
  call void @work(ptr %state, i64 0)
  %closing = atomicrmw and ptr %gate, i64 {~OPEN} seq_cst, align 8
  {at("came.at", "came")}
  %came = load atomic i64, ptr %came.at monotonic, align 8
  %helped = icmp eq i64 %came, %number
  br i1 %helped, label %hold, label %stand
stand:
  ; Nobody came: perhaps who should waits for this processor.
  {at("later.at", "passes")}
  store i64 {PASSES}, ptr %later.at
  {at("yield.at", "yield")}
  %yield = load ptr, ptr %yield.at
  %ignored = call i32 %yield()
  br label %hold
hold:
  %since = {ticks(is_x86)}
  br label %spin
spin:
  %k = phi i64 [ 0, %hold ], [ %k.next, %again ]
  %seen = load atomic i64, ptr %gate acquire, align 8
  %inside = and i64 %seen, {INSIDE}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %end, label %again
again:
  call void @pause(ptr %state, i64 %k, i1 false)
  %k.next = add i64 %k, 1
  %spins = call i1 @patient(i64 %k.next, i64 %since)
  br i1 %spins, label %spin, label %sleep
sleep:
  {call("lock", "mutex")}
  {at("waiting", "waiting")}
  %waits = atomicrmw xchg ptr %waiting, i64 1 seq_cst, align 8
  br label %doze
doze:
  %look = load atomic i64, ptr %gate seq_cst, align 8
  %look.inside = and i64 %look, {INSIDE}
  %look.empty = icmp eq i64 %look.inside, 0
  br i1 %look.empty, label %awake, label %rest
rest:
  {call("wait", "done", "mutex")}
  br label %doze
awake:
  %stopped = atomicrmw xchg ptr %waiting, i64 0 seq_cst, align 8
  {call("unlock", "mutex")}
  br label %end
end:
  %found = load atomic i64, ptr %failure monotonic, align 8
  call void @pullback_crew_release(ptr %state)
  %fine = icmp eq i64 %found, -1
  %code = and i64 %found, {0xFFFFFFFF}
  %result = select i1 %fine, i64 0, i64 %code
  ret i64 %result
}}
"""
