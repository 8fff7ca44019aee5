"""The loop of a worker thread, as LLVM IR text: wait at the gate, work, sleep, end."""

from __future__ import annotations

from pullback.runtime.threads.state import HANDLES, OPEN, RANGE, RANGES, at, call, part

SPINS, SPINS_BETWEEN = 1 << 11, 1 << 6
"""The number of times that a waiting thread reads the gate before it sleeps, and before it yields its processor."""
SPIN_TICKS = 1 << 19
"""The time for which a thread reads the gate where a register counts time, in ticks (x86: 130 to 260 microseconds); there a
pause instruction takes 15 to 140 cycles."""


def ticks(is_x86: bool) -> str:
    """Return an operation that reads the time in ticks; 0 where no register counts it."""
    return "call i64 @llvm.x86.rdtsc()" if is_x86 else "add i64 0, 0"


def wait_functions(is_x86: bool) -> str:
    """Return the functions for waiting, used by workers at the gate and by the caller."""
    pause = "call void @llvm.x86.sse2.pause()" if is_x86 else ""
    patient = f"%time = {ticks(is_x86)}\n  %spent = sub i64 %time, %since\n  %on = icmp ult i64 %spent, {SPIN_TICKS}"
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
  {at("yield.at", "yield")}
  %yield = load ptr, ptr %yield.at
  %ignored = call i32 %yield()
  br label %done
done:
  ret void
}}

; Moves this thread to another processor if it shares one with the caller, which a scheduler may take long to see.
define internal void @part(ptr %state) nounwind noinline {{
entry:
  {at("where.at", "where")}
  %where = load ptr, ptr %where.at
  %known = icmp ne ptr %where, null
  br i1 %known, label %ask, label %done
ask:
  %here = call i32 %where()
  {at("processor.at", "processor")}
  %there = load atomic i64, ptr %processor.at monotonic, align 8
  %mine = sext i32 %here to i64
  %same = icmp eq i64 %mine, %there
  %low = icmp ult i64 %mine, 1024
  %both = and i1 %same, %low
  br i1 %both, label %move, label %done
move:
  %all = alloca [128 x i8], align 16
  %others = alloca [128 x i8], align 16
  {at("affinity.at", "affinity")}
  %affinity = load ptr, ptr %affinity.at
  {at("bind.at", "bind")}
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
"""


def worker(is_x86: bool) -> str:
    """Return the function of a worker thread, and those that wake sleeping threads."""
    take = "call void @llvm.x86.sse.ldmxcsr(ptr %mode)" if is_x86 else ""
    return f"""
; What a thread does all its life. %range names the thread and the state.
define internal ptr @member(ptr %range) nounwind {{
entry:
  %id.at = getelementptr i64, ptr %range, i64 2
  %id = load i64, ptr %id.at
  %state.at = getelementptr i64, ptr %range, i64 3
  %state = load ptr, ptr %state.at
  %signals = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  {at("mask.at", "mask")}
  %mask = load ptr, ptr %mask.at
  {at("block.at", "block_all")}
  %block = load i32, ptr %block.at
  %masked = call i32 %mask(i32 %block, ptr %signals, ptr null)
  {at("gate", "gate")}
  {at("stop", "stop")}
  {at("sleeping", "sleeping")}
  {at("waiting", "waiting")}
  {at("came", "came")}
  br label %watch
watch:
  %known = phi i64 [ 0, %entry ], [ %known, %enter ], [ %known, %awake ], [ %number, %leave ], [ %number, %tell ]
  %since = {ticks(is_x86)}
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
  {call("lock", "mutex")}
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
  {call("wait", "work", "mutex")}
  br label %doze
awake:
  %woken = atomicrmw sub ptr %sleeping, i64 1 seq_cst, align 8
  {call("unlock", "mutex")}
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
  {at("mode", "mode")}
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
  {call("lock", "mutex")}
  {call("signal", "done")}
  {call("unlock", "mutex")}
  ret void
}}

define internal void @wake(ptr %state) nounwind noinline {{
  {call("lock", "mutex")}
  {call("signal", "work")}
  {call("unlock", "mutex")}
  ret void
}}
"""


def start_stop() -> str:
    """Return the functions that start and stop threads."""
    return f"""
; Starts the threads that are missing; fewer, where the system gives no more.
define internal void @start(ptr %state, i64 %threads) nounwind noinline {{
entry:
  {at("started", "started")}
  {at("create.at", "create")}
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
  {part("handles", HANDLES)}
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
  {at("stop", "stop")}
  store atomic i64 1, ptr %stop seq_cst, align 8
  call void @wake(ptr %state)
  {at("started", "started")}
  {at("join.at", "join")}
  %join = load ptr, ptr %join.at
  {part("handles", HANDLES)}
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
"""
