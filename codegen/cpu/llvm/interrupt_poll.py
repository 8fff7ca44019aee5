"""LLVM IR functions with which native code polls, now and then, whether the program is to be interrupted.

``asked(table)`` polls at once if it runs in the thread that handles signals; it returns 0 to continue.

``tick(state, table)`` returns 0 to stop, else the number of loop iterations after which to call it again. ``state`` holds the
time of the last call, 0 at first, and that number of iterations. ``table`` is the table of ``runtime.program.interrupts``. The
time is that of the table's ``clock_gettime``, in microseconds, or of its ``clock``, a system call, if it has no other.
"""

ASKED = """
define internal i64 @asked(ptr %table) noinline {
  %ident.at = getelementptr i64, ptr %table, i64 3
  %ident = load ptr, ptr %ident.at
  %here = call i64 %ident()
  %thread = trunc i64 %here to i32
  %main.at = getelementptr i64, ptr %table, i64 4
  %main = load i32, ptr %main.at
  %is.main = icmp eq i32 %thread, %main
  br i1 %is.main, label %free, label %go
free:
  %busy.at = getelementptr i64, ptr %table, i64 5
  %busy = load i64, ptr %busy.at
  %is.busy = icmp ne i64 %busy, 0
  br i1 %is.busy, label %go, label %ask
ask:
  store i64 1, ptr %busy.at
  %ask.at = getelementptr i64, ptr %table, i64 2
  %question = load ptr, ptr %ask.at
  %stops = call i64 %question()
  store i64 0, ptr %busy.at
  ret i64 %stops
go:
  ret i64 0
}
"""

TICK = """
define internal i64 @tick(ptr %state, i64 %table.bits) noinline {
  %table = inttoptr i64 %table.bits to ptr
  %parts = alloca [2 x i64]
  %gettime.at = getelementptr i64, ptr %table, i64 6
  %gettime = load ptr, ptr %gettime.at
  %is.absent = icmp eq ptr %gettime, null
  br i1 %is.absent, label %slow, label %fast
fast:
  %id.at = getelementptr i64, ptr %table, i64 7
  %id = load i32, ptr %id.at
  %code = call i32 %gettime(i32 %id, ptr %parts)
  %seconds = load i64, ptr %parts
  %nanoseconds.at = getelementptr i64, ptr %parts, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %whole = mul i64 %seconds, 1000000
  %part = udiv i64 %nanoseconds, 1000
  %microseconds = add i64 %whole, %part
  br label %read
slow:
  %clock = load ptr, ptr %table
  %ticks = call i64 %clock()
  br label %read
read:
  %time = phi i64 [ %microseconds, %fast ], [ %ticks, %slow ]
  %now = trunc i64 %time to i32
  %last = load i32, ptr %state
  store i32 %now, ptr %state
  %elapsed = sub i32 %now, %last
  %period.at = getelementptr i64, ptr %state, i64 1
  %period = load i64, ptr %period.at
  %quantum.at = getelementptr i64, ptr %table, i64 1
  %quantum = load i32, ptr %quantum.at
  %is.first = icmp eq i32 %last, 0
  %is.early = icmp slt i32 %elapsed, %quantum
  %is.more = or i1 %is.first, %is.early
  br i1 %is.more, label %more, label %due
more:
  %longer = shl i64 %period, 2
  %next = call i64 @llvm.smin.i64(i64 %longer, i64 1099511627776)
  store i64 %next, ptr %period.at
  ret i64 %next
due:
  %long = shl i32 %quantum, 3
  %is.late = icmp sgt i32 %elapsed, %long
  %shorter = lshr i64 %period, 2
  %least = call i64 @llvm.smax.i64(i64 %shorter, i64 1)
  %chosen = select i1 %is.late, i64 %least, i64 %period
  store i64 %chosen, ptr %period.at
  %stops = call i64 @asked(ptr %table)
  %is.stopped = icmp ne i64 %stops, 0
  br i1 %is.stopped, label %stop, label %go
go:
  ret i64 %chosen
stop:
  ret i64 0
}
"""
