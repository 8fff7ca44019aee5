"""The native side of parallel loops: threads that share out the chunks of a loop, as LLVM IR text.

``run(state, function, context, chunks)`` calls ``function(context, chunk)`` once for each chunk and returns the status of the
lowest chunk that has one, or 0. It may be called from any thread; a caller that finds the threads at work runs its chunks by
itself, and so do nested calls. The code calls nothing but the addresses in %state, which are of the system's thread library.

Chunks are shared out in contiguous ranges, one for each thread, so that a loop that runs again meets its data in the same
cache; who is done takes from the others. %gate says what is going on: its low bits count the threads at work, a bit says that
more may come, and the bits above are the number of the loop. The caller works too, then closes the gate and waits for those
inside, never for those who have not come. A thread that is done looks at the gate for about 200 microseconds, then sleeps.
Threads work in the caller's mode of floating-point arithmetic, so that what they do with subnormal numbers does not depend on who
started them.

A library's routine runs on one thread between ``enter`` and ``leave``: its own threads would wait for ours, and its results
depend on their number. ``gemm`` is a matrix product in parts (``products``). The number of the library's threads is what it was
as soon as nobody is inside.
"""

from __future__ import annotations

from pullback.codegen.llvm_text import THREADS
from pullback.runtime import products

MOST_THREADS = 256
SPINS, SPINS_BETWEEN = 1 << 11, 1 << 6
"""How often a thread that waits looks at the gate before it sleeps, and before it offers its processor to others."""
SPIN_TICKS = 1 << 19
"""How long it looks at the gate where a register counts time (x86: 130 to 260 microseconds): a pause takes 15 to 140 cycles."""

# The fields of %state, 64 bits each; first the functions that emitted code calls.
FIELDS = (
    *THREADS, "threads", "busy", "gate", "started", "sleeping", "waiting", "stop", "function", "context", "failure", "members",
    "mode", "create", "join", "lock", "unlock", "wait", "signal", "mask", "block_all", "dispatched", "yield", "processor",
    "where", "affinity", "bind", "came", "passes",
    "users", "guard", "blas_get", "blas_set", "blas_before",
)  # fmt: skip
SMALL, PASSES = 4, 7
"""So many loops of so few chunks that meet all threads asleep leave them so, after one that woke them in vain."""
MUTEX = -(-8 * len(FIELDS) // 64) * 64
WORK, DONE, HANDLES, RANGES = MUTEX + 64, MUTEX + 128, MUTEX + 192, MUTEX + 192 + 8 * MOST_THREADS
"""Byte offsets: of the mutex, of the conditions "there is work" and "all are done", of the threads, and of their ranges."""
RANGE = 64
STATE_BYTES = RANGES + RANGE * MOST_THREADS
SERVICES = (*THREADS, "stop", "acquire", "release")

OPEN = 1 << 15
INSIDE = OPEN - 1
STORE, LOAD = (f"sse.{name}mxcsr(ptr %mode)" for name in ("st", "ld"))
PROCESSORS = """declare i64 @llvm.x86.rdtsc()
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)"""


def _at(name: str, field: str) -> str:
    return f"%{name} = getelementptr i64, ptr %state, i64 {FIELDS.index(field)}"


def _part(name: str, offset: int) -> str:
    return f"%{name} = getelementptr i8, ptr %state, i64 {offset}"


def _call(function: str, *parts: str) -> str:
    """A call of a function of the thread library on parts of the state, as lines."""
    offsets = {"mutex": MUTEX, "work": WORK, "done": DONE}
    name = f"{function}.{'.'.join(parts)}"
    lines = [_at(f"{name}.at", function), f"%{name}.f = load ptr, ptr %{name}.at"]
    lines += [_part(f"{name}.{part}", offsets[part]) for part in parts]
    given = ", ".join(f"ptr %{name}.{part}" for part in parts)
    lines.append(f"%{name}.r = call i32 %{name}.f({given})")
    return "\n  ".join(lines)


def _library() -> str:
    """The functions around routines of BLAS and LAPACK."""
    return f"""
define internal void @hold(ptr %state) nounwind {{
entry:
  {_at("guard", "guard")}
  br label %try
try:
  %pair = cmpxchg ptr %guard, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %done, label %again
again:
  call void @pause(ptr %state, i64 {SPINS_BETWEEN - 1}, i1 false)
  br label %try
done:
  ret void
}}

define internal void @unhold(ptr %state) nounwind {{
  {_at("guard", "guard")}
  store atomic i64 0, ptr %guard release, align 8
  ret void
}}

define void @pullback_crew_enter(ptr %state) nounwind {{
entry:
  {_at("get.at", "blas_get")}
  %get = load ptr, ptr %get.at
  %known = icmp ne ptr %get, null
  br i1 %known, label %count, label %done
count:
  call void @hold(ptr %state)
  {_at("users.at", "users")}
  %users = load i64, ptr %users.at
  %more = add i64 %users, 1
  store i64 %more, ptr %users.at
  %first = icmp eq i64 %users, 0
  br i1 %first, label %set, label %out
set:
  %before = call i32 %get()
  %wide = sext i32 %before to i64
  {_at("before.at", "blas_before")}
  store i64 %wide, ptr %before.at
  {_at("set.at", "blas_set")}
  %function = load ptr, ptr %set.at
  call void %function(i32 1)
  br label %out
out:
  call void @unhold(ptr %state)
  br label %done
done:
  ret void
}}

define void @pullback_crew_leave(ptr %state) nounwind {{
entry:
  {_at("get.at", "blas_get")}
  %get = load ptr, ptr %get.at
  %known = icmp ne ptr %get, null
  br i1 %known, label %count, label %done
count:
  call void @hold(ptr %state)
  {_at("users.at", "users")}
  %users = load i64, ptr %users.at
  %fewer = sub i64 %users, 1
  store i64 %fewer, ptr %users.at
  %last = icmp eq i64 %fewer, 0
  br i1 %last, label %set, label %out
set:
  {_at("before.at", "blas_before")}
  %before = load i64, ptr %before.at
  %narrow = trunc i64 %before to i32
  {_at("set.at", "blas_set")}
  %function = load ptr, ptr %set.at
  call void %function(i32 %narrow)
  br label %out
out:
  call void @unhold(ptr %state)
  br label %done
done:
  ret void
}}
"""


def source(is_x86: bool) -> str:
    """The module. What only some processors have: a pause that spares a neighbour, and the mode of floating-point arithmetic."""
    pause, keep, take = (f"call void @llvm.x86.{name}" if is_x86 else "" for name in ("sse2.pause()", STORE, LOAD))
    now = "call i64 @llvm.x86.rdtsc()" if is_x86 else "add i64 0, 0"
    patient = f"%time = {now}\n  %spent = sub i64 %time, %since\n  %on = icmp ult i64 %spent, {SPIN_TICKS}"
    return f"""
; Whether a thread that has waited for %k looks at the gate, from %since on, looks on.
define internal i1 @patient(i64 %k, i64 %since) nounwind alwaysinline {{
entry:
  {patient if is_x86 else f"%on = icmp ult i64 %k, {SPINS}"}
  ret i1 %on
}}

; Waits for a moment; now and then somebody else may have the processor.
define internal void @pause(ptr %state, i64 %k, i1 %member) nounwind alwaysinline {{
entry:
  {pause}
  %low = and i64 %k, {SPINS_BETWEEN - 1}
  %due = icmp eq i64 %low, {SPINS_BETWEEN - 1}
  br i1 %due, label %give, label %done
give:
  br i1 %member, label %apart, label %offer
apart:
  call void @part(ptr %state)
  br label %offer
offer:
  {_at("yield.at", "yield")}
  %yield = load ptr, ptr %yield.at
  %ignored = call i32 %yield()
  br label %done
done:
  ret void
}}

; Moves this thread to another processor if it shares one with the caller, which a scheduler may take long to see.
define internal void @part(ptr %state) nounwind noinline {{
entry:
  {_at("where.at", "where")}
  %where = load ptr, ptr %where.at
  %known = icmp ne ptr %where, null
  br i1 %known, label %ask, label %done
ask:
  %here = call i32 %where()
  {_at("processor.at", "processor")}
  %there = load atomic i64, ptr %processor.at monotonic, align 8
  %mine = sext i32 %here to i64
  %same = icmp eq i64 %mine, %there
  %low = icmp ult i64 %mine, 1024
  %both = and i1 %same, %low
  br i1 %both, label %move, label %done
move:
  %all = alloca [128 x i8], align 16
  %others = alloca [128 x i8], align 16
  {_at("affinity.at", "affinity")}
  %affinity = load ptr, ptr %affinity.at
  {_at("bind.at", "bind")}
  %bind = load ptr, ptr %bind.at
  call void @llvm.memset.p0.i64(ptr %all, i8 0, i64 128, i1 false)
  %failed = call i32 %affinity(i32 0, i64 128, ptr %all)
  %fine = icmp sge i32 %failed, 0
  br i1 %fine, label %leave, label %done
leave:
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr %all, i64 128, i1 false)
  %byte = lshr i64 %mine, 3
  %at = getelementptr i8, ptr %others, i64 %byte
  %old = load i8, ptr %at
  %low3 = and i64 %mine, 7
  %shift = trunc i64 %low3 to i8
  %bit = shl i8 1, %shift
  %rest = xor i8 %bit, -1
  %new = and i8 %old, %rest
  store i8 %new, ptr %at
  %away = call i32 %bind(i32 0, i64 128, ptr %others)
  %back = call i32 %bind(i32 0, i64 128, ptr %all)
  br label %done
done:
  ret void
}}

define i64 @pullback_crew_acquire(ptr %state) nounwind {{
  {_at("busy", "busy")}
  %pair = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  %result = zext i1 %won to i64
  ret i64 %result
}}

define void @pullback_crew_release(ptr %state) nounwind {{
  {_at("busy", "busy")}
  store atomic i64 0, ptr %busy release, align 8
  ret void
}}

; The chunks of one's own range, then those that others have left. Statuses join in %failure.
define internal void @work(ptr %state, i64 %id) nounwind {{
entry:
  {_at("function.at", "function")}
  %function = load ptr, ptr %function.at
  {_at("context.at", "context")}
  %context = load ptr, ptr %context.at
  {_at("members.at", "members")}
  %members = load i64, ptr %members.at
  {_at("failure", "failure")}
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

; What a thread does all its life. %range names the thread and the state.
define internal ptr @member(ptr %range) nounwind {{
entry:
  %id.at = getelementptr i64, ptr %range, i64 2
  %id = load i64, ptr %id.at
  %state.at = getelementptr i64, ptr %range, i64 3
  %state = load ptr, ptr %state.at
  %signals = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  {_at("mask.at", "mask")}
  %mask = load ptr, ptr %mask.at
  {_at("block.at", "block_all")}
  %block = load i32, ptr %block.at
  %masked = call i32 %mask(i32 %block, ptr %signals, ptr null)
  {_at("gate", "gate")}
  {_at("stop", "stop")}
  {_at("sleeping", "sleeping")}
  {_at("waiting", "waiting")}
  {_at("came", "came")}
  br label %watch
watch:
  %known = phi i64 [ 0, %entry ], [ %known, %enter ], [ %known, %awake ], [ %number, %leave ], [ %number, %tell ]
  %since = {now}
  br label %spin
spin:
  %k = phi i64 [ 0, %watch ], [ %k.next, %again ]
  %seen = load atomic i64, ptr %gate acquire, align 8
  %number = lshr i64 %seen, 16
  %open.bit = and i64 %seen, {OPEN}
  %open = icmp ne i64 %open.bit, 0
  %new = icmp ne i64 %number, %known
  %comes = and i1 %open, %new
  br i1 %comes, label %enter, label %idle
idle:
  %ends = load atomic i64, ptr %stop monotonic, align 8
  %ended = icmp ne i64 %ends, 0
  br i1 %ended, label %out, label %again
again:
  call void @pause(ptr %state, i64 %k, i1 true)
  %k.next = add i64 %k, 1
  %spins = call i1 @patient(i64 %k.next, i64 %since)
  br i1 %spins, label %spin, label %sleep
sleep:
  {_call("lock", "mutex")}
  %asleep = atomicrmw add ptr %sleeping, i64 1 seq_cst, align 8
  br label %doze
doze:
  %look = load atomic i64, ptr %gate seq_cst, align 8
  %look.number = lshr i64 %look, 16
  %look.bit = and i64 %look, {OPEN}
  %look.open = icmp ne i64 %look.bit, 0
  %look.new = icmp ne i64 %look.number, %known
  %look.comes = and i1 %look.open, %look.new
  %look.ends = load atomic i64, ptr %stop monotonic, align 8
  %look.ended = icmp ne i64 %look.ends, 0
  %up = or i1 %look.comes, %look.ended
  br i1 %up, label %awake, label %rest
rest:
  {_call("wait", "work", "mutex")}
  br label %doze
awake:
  %woken = atomicrmw sub ptr %sleeping, i64 1 seq_cst, align 8
  {_call("unlock", "mutex")}
  call void @part(ptr %state)
  br label %watch
enter:
  %inside = add i64 %seen, 1
  %pair = cmpxchg ptr %gate, i64 %seen, i64 %inside acq_rel monotonic, align 8
  %entered = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %entered, label %share, label %watch
share:
  store atomic i64 %number, ptr %came monotonic, align 8
  call void @part(ptr %state)
  {_at("mode", "mode")}
  {take}
  call void @work(ptr %state, i64 %id)
  br label %leave
leave:
  %left = atomicrmw sub ptr %gate, i64 1 seq_cst, align 8
  %waits = load atomic i64, ptr %waiting seq_cst, align 8
  %awaited = icmp ne i64 %waits, 0
  br i1 %awaited, label %tell, label %watch
tell:
  call void @tell(ptr %state)
  br label %watch
out:
  ret ptr null
}}

define internal void @tell(ptr %state) nounwind noinline {{
  {_call("lock", "mutex")}
  {_call("signal", "done")}
  {_call("unlock", "mutex")}
  ret void
}}

define internal void @wake(ptr %state) nounwind noinline {{
  {_call("lock", "mutex")}
  {_call("signal", "work")}
  {_call("unlock", "mutex")}
  ret void
}}

; Starts the threads that are missing; fewer, where the system gives no more.
define internal void @start(ptr %state, i64 %threads) nounwind noinline {{
entry:
  {_at("started", "started")}
  {_at("create.at", "create")}
  %create = load ptr, ptr %create.at
  br label %head
head:
  %count = load i64, ptr %started
  %id = add i64 %count, 1
  %more = icmp slt i64 %id, %threads
  br i1 %more, label %body, label %done
body:
  %offset = mul i64 %id, {RANGE}
  %at = add i64 %offset, {RANGES}
  %range = getelementptr i8, ptr %state, i64 %at
  %id.at = getelementptr i64, ptr %range, i64 2
  store i64 %id, ptr %id.at
  %state.at = getelementptr i64, ptr %range, i64 3
  store ptr %state, ptr %state.at
  {_part("handles", HANDLES)}
  %handle = getelementptr i64, ptr %handles, i64 %id
  %failed = call i32 %create(ptr %handle, ptr null, ptr @member, ptr %range)
  %made = icmp eq i32 %failed, 0
  br i1 %made, label %on, label %done
on:
  store i64 %id, ptr %started
  br label %head
done:
  ret void
}}

; Ends all threads. The state is held.
define void @pullback_crew_stop(ptr %state) nounwind {{
entry:
  {_at("stop", "stop")}
  store atomic i64 1, ptr %stop seq_cst, align 8
  call void @wake(ptr %state)
  {_at("started", "started")}
  {_at("join.at", "join")}
  %join = load ptr, ptr %join.at
  {_part("handles", HANDLES)}
  br label %head
head:
  %id = load i64, ptr %started
  %more = icmp sgt i64 %id, 0
  br i1 %more, label %body, label %done
body:
  %handle.at = getelementptr i64, ptr %handles, i64 %id
  %handle = load i64, ptr %handle.at
  %joined = call i32 %join(i64 %handle, ptr null)
  %fewer = sub i64 %id, 1
  store i64 %fewer, ptr %started
  br label %head
done:
  store atomic i64 0, ptr %stop seq_cst, align 8
  ret void
}}

define internal i64 @alone(ptr %function, ptr %context, i64 %chunks) nounwind {{
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
}}

define i64 @pullback_crew_run(ptr %state, ptr %function, ptr %context, i64 %chunks) nounwind {{
  %status = call i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 {SMALL})
  ret i64 %status
}}

define internal i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 %most) nounwind {{
entry:
  {_at("threads.at", "threads")}
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
  {_at("started.at", "started")}
  %started = load i64, ptr %started.at
  %all = add i64 %started, 1
  %missing = icmp slt i64 %all, %threads
  br i1 %missing, label %hire, label %count
hire:
  call void @start(ptr %state, i64 %threads)
  br label %prepare
count:
  ; Where waking a thread takes as long as a small loop, most of these pass while all are asleep.
  {_at("asleep.at", "sleeping")}
  %dozing = load atomic i64, ptr %asleep.at monotonic, align 8
  %nobody = icmp sge i64 %dozing, %started
  %small = icmp sle i64 %chunks, %most
  %dear = and i1 %nobody, %small
  br i1 %dear, label %weigh, label %prepare
weigh:
  {_at("passes.at", "passes")}
  %passes = load i64, ptr %passes.at
  %goes = icmp eq i64 %passes, 0
  br i1 %goes, label %prepare, label %pass
pass:
  %fewer = sub i64 %passes, 1
  store i64 %fewer, ptr %passes.at
  call void @pullback_crew_release(ptr %state)
  br label %single
prepare:
  {_at("function.at", "function")}
  store ptr %function, ptr %function.at
  {_at("context.at", "context")}
  store ptr %context, ptr %context.at
  {_at("failure", "failure")}
  store atomic i64 -1, ptr %failure monotonic, align 8
  {_at("members.at", "members")}
  store i64 %threads, ptr %members.at
  {_at("mode", "mode")}
  {keep}
  {_at("dispatched.at", "dispatched")}
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
  {_at("where.at", "where")}
  %where = load ptr, ptr %where.at
  %known = icmp ne ptr %where, null
  br i1 %known, label %ask, label %post
ask:
  %here = call i32 %where()
  %place = sext i32 %here to i64
  {_at("processor", "processor")}
  store atomic i64 %place, ptr %processor monotonic, align 8
  br label %post
post:
  {_at("gate", "gate")}
  %old = load atomic i64, ptr %gate monotonic, align 8
  %earlier = lshr i64 %old, 16
  %number = add i64 %earlier, 1
  %shifted = shl i64 %number, 16
  %opened = or i64 %shifted, {OPEN}
  %was = atomicrmw xchg ptr %gate, i64 %opened seq_cst, align 8
  {_at("sleeping", "sleeping")}
  %sleepers = load atomic i64, ptr %sleeping seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %call, label %share
call:
  call void @wake(ptr %state)
  br label %share
share:
  call void @work(ptr %state, i64 0)
  %closing = atomicrmw and ptr %gate, i64 {~OPEN} seq_cst, align 8
  {_at("came.at", "came")}
  %came = load atomic i64, ptr %came.at monotonic, align 8
  %helped = icmp eq i64 %came, %number
  br i1 %helped, label %hold, label %stand
stand:
  ; Nobody came: perhaps who should waits for this processor.
  {_at("later.at", "passes")}
  store i64 {PASSES}, ptr %later.at
  {_at("yield.at", "yield")}
  %yield = load ptr, ptr %yield.at
  %ignored = call i32 %yield()
  br label %hold
hold:
  %since = {now}
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
  {_call("lock", "mutex")}
  {_at("waiting", "waiting")}
  %waits = atomicrmw xchg ptr %waiting, i64 1 seq_cst, align 8
  br label %doze
doze:
  %look = load atomic i64, ptr %gate seq_cst, align 8
  %look.inside = and i64 %look, {INSIDE}
  %look.empty = icmp eq i64 %look.inside, 0
  br i1 %look.empty, label %awake, label %rest
rest:
  {_call("wait", "done", "mutex")}
  br label %doze
awake:
  %stopped = atomicrmw xchg ptr %waiting, i64 0 seq_cst, align 8
  {_call("unlock", "mutex")}
  br label %end
end:
  %found = load atomic i64, ptr %failure monotonic, align 8
  call void @pullback_crew_release(ptr %state)
  %fine = icmp eq i64 %found, -1
  %code = and i64 %found, {0xFFFFFFFF}
  %result = select i1 %fine, i64 0, i64 %code
  ret i64 %result
}}
{_library()}{products.source(SMALL)}
{PROCESSORS if is_x86 else ""}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
