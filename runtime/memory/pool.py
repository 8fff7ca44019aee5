"""The native side of result memory: a NumPy allocator over a bounded table of freed blocks, as LLVM IR text.

Every function may be called from any thread, with or without Python's lock. The table is accessed only under its own lock; if
the lock cannot be acquired, memory comes from and goes to the C library. No block is handed out twice: it is either in the
table or in use. The code calls only the addresses in %pool, which are the C library's.

A block from the C library begins with some bytes of padding; the data follow at a multiple of 64. The 16 bytes before the data
hold the address of the block and its capacity, so that the sizes passed by NumPy are not needed.

Large blocks start at different offsets within a page. A processor compares the low 12 bits of addresses first: a load waits
for earlier stores with the same low bits, as in loops that traverse several arrays from the same page offset. Streaming stores
make it wait long (Zen 3: a loop that reads two arrays and writes two took eight times as long).
"""

from __future__ import annotations

import mmap

from pullback.codegen.cpu.llvm.text import TIERED

LARGE_BYTES = 1 << 16
"""The size in bytes from which arrays are pooled, and their capacity is a multiple of a page."""
POOL_BLOCKS = 64
"""The number of blocks that the table of freed blocks holds."""
HUGE_BYTES = 4 << 20
"""The size in bytes from which huge pages are requested."""
COLOURS, COLOUR_STEP = 13, 5
"""The number of page offsets (512, 768, ... 3584 bytes), and the step between successive blocks. NumPy's own large arrays
begin at 16."""

# The fields of %pool, 64 bits each, before the table of blocks.
FIELDS = ("lock", "count", "bytes", "limit", "hits", "misses", "malloc", "calloc", "free", "madvise")
STATE_BYTES = 8 * len(FIELDS) + 16 * POOL_BLOCKS
# NumPy's PyDataMemAllocator functions in order; then trim(pool, bytes) -> more to do, acquire(pool) -> success, release(pool).
ALLOCATOR = ("malloc", "calloc", "realloc", "free")
SERVICES = ("trim", "acquire", "release")

SOURCE = f"""{TIERED}
%block = type {{ ptr, i64 }}
%pool = type {{ i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, ptr, [{POOL_BLOCKS} x %block] }}

define i64 @pullback_pool_acquire(ptr %pool) nounwind {{
entry:
  br label %try
try:
  %k = phi i64 [ 0, %entry ], [ %next, %again ]
  %pair = cmpxchg ptr %pool, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %done, label %again
again:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, 100
  br i1 %more, label %try, label %done
done:
  %result = zext i1 %won to i64
  ret i64 %result
}}

define void @pullback_pool_release(ptr %pool) nounwind {{
  store atomic i64 0, ptr %pool release, align 8
  ret void
}}

; Takes block %k out of the table, whose lock is held.
define internal ptr @remove(ptr %pool, i64 %k) alwaysinline nounwind {{
  %at = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %k
  %data = load ptr, ptr %at
  %capacity_at = getelementptr %block, ptr %at, i64 0, i32 1
  %capacity = load i64, ptr %capacity_at
  %count_at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %count = load i64, ptr %count_at
  %left = sub i64 %count, 1
  store i64 %left, ptr %count_at
  %bytes_at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %bytes = load i64, ptr %bytes_at
  %fewer = sub i64 %bytes, %capacity
  store i64 %fewer, ptr %bytes_at
  %after = getelementptr %block, ptr %at, i64 1
  %behind = sub i64 %left, %k
  %moved = mul i64 %behind, 16
  call void @llvm.memmove.p0.p0.i64(ptr align 8 %at, ptr align 8 %after, i64 %moved, i1 false)
  ret ptr %data
}}

; The newest block of exactly this capacity, or null.
define internal ptr @take(ptr %pool, i64 %capacity) nounwind {{
entry:
  %locked = call i64 @pullback_pool_acquire(ptr %pool)
  %held = icmp ne i64 %locked, 0
  br i1 %held, label %start, label %none
start:
  %count_at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %count = load i64, ptr %count_at
  br label %head
head:
  %k = phi i64 [ %count, %start ], [ %before, %body ]
  %more = icmp ugt i64 %k, 0
  br i1 %more, label %body, label %unlock
body:
  %before = sub i64 %k, 1
  %at = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %before, i32 1
  %size = load i64, ptr %at
  %fits = icmp eq i64 %size, %capacity
  br i1 %fits, label %found, label %head
found:
  %data = call ptr @remove(ptr %pool, i64 %before)
  br label %unlock
unlock:
  %result = phi ptr [ null, %head ], [ %data, %found ]
  call void @pullback_pool_release(ptr %pool)
  ret ptr %result
none:
  ret ptr null
}}

define internal void @to_library(ptr %pool, ptr %data) nounwind {{
  %free_at = getelementptr %pool, ptr %pool, i64 0, i32 8
  %free = load ptr, ptr %free_at
  %header = getelementptr i8, ptr %data, i64 -16
  %block = load ptr, ptr %header
  call void %free(ptr %block)
  ret void
}}

; Frees the oldest block if more than %keep bytes or %blocks blocks are held. Gives 1 if there may be more to do.
define internal i64 @evict(ptr %pool, i64 %keep, i64 %blocks) nounwind {{
entry:
  %locked = call i64 @pullback_pool_acquire(ptr %pool)
  %held = icmp ne i64 %locked, 0
  br i1 %held, label %look, label %busy
look:
  %count_at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %count = load i64, ptr %count_at
  %bytes_at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %bytes = load i64, ptr %bytes_at
  %heavy = icmp ugt i64 %bytes, %keep
  %many = icmp ugt i64 %count, %blocks
  %over = or i1 %heavy, %many
  br i1 %over, label %drop, label %enough
drop:
  %data = call ptr @remove(ptr %pool, i64 0)
  call void @pullback_pool_release(ptr %pool)
  call void @to_library(ptr %pool, ptr %data)
  ret i64 1
enough:
  call void @pullback_pool_release(ptr %pool)
  ret i64 0
busy:
  ret i64 1
}}

define i64 @pullback_pool_trim(ptr %pool, i64 %keep) nounwind {{
  %more = call i64 @evict(ptr %pool, i64 %keep, i64 {POOL_BLOCKS})
  ret i64 %more
}}

; What a block takes beside its data.
define internal i64 @extra(i64 %capacity) alwaysinline nounwind {{
  %large = icmp uge i64 %capacity, {LARGE_BYTES}
  %bytes = select i1 %large, i64 4112, i64 80
  ret i64 %bytes
}}

; Where the data of a block lies; null for null.
define internal ptr @place(ptr %block, i64 %capacity, i64 %number) nounwind {{
entry:
  %absent = icmp eq ptr %block, null
  br i1 %absent, label %none, label %some
some:
  %turn = mul i64 %number, {COLOUR_STEP}
  %colour = urem i64 %turn, {COLOURS}
  %second = add i64 %colour, 2
  %start = mul i64 %second, 256
  %large = icmp uge i64 %capacity, {LARGE_BYTES}
  %bits = select i1 %large, i64 4095, i64 63
  %address = ptrtoint ptr %block to i64
  %before = add i64 %address, 16
  %difference = sub i64 %start, %before
  %pad = and i64 %difference, %bits
  %offset = add i64 %pad, 16
  %data = getelementptr i8, ptr %block, i64 %offset
  %header = getelementptr i8, ptr %data, i64 -16
  store ptr %block, ptr %header
  %capacity_at = getelementptr i8, ptr %data, i64 -8
  store i64 %capacity, ptr %capacity_at
  ret ptr %data
none:
  ret ptr null
}}

define internal i64 @capacity_of(i64 %size) alwaysinline nounwind {{
  %more = add i64 %size, 4095
  %pages = and i64 %more, -4096
  %large = icmp uge i64 %size, {LARGE_BYTES}
  %capacity = select i1 %large, i64 %pages, i64 %size
  ret i64 %capacity
}}

define internal i1 @is_pooled(ptr %pool, i64 %capacity) alwaysinline nounwind {{
  %limit_at = getelementptr %pool, ptr %pool, i64 0, i32 3
  %limit = load i64, ptr %limit_at
  %large = icmp uge i64 %capacity, {LARGE_BYTES}
  %small = icmp ule i64 %capacity, %limit
  %both = and i1 %large, %small
  ret i1 %both
}}

; Asks for huge pages in whole pages of a fresh large block, as NumPy does for its own.
define internal void @advise(ptr %pool, ptr %data, i64 %capacity) nounwind {{
entry:
  %madvise_at = getelementptr %pool, ptr %pool, i64 0, i32 9
  %madvise = load ptr, ptr %madvise_at
  %known = icmp ne ptr %madvise, null
  %large = icmp uge i64 %capacity, {HUGE_BYTES}
  %both = and i1 %known, %large
  br i1 %both, label %ask, label %done
ask:
  %address = ptrtoint ptr %data to i64
  %more = add i64 %address, 4095
  %page = and i64 %more, -4096
  %offset = sub i64 %page, %address
  %start = getelementptr i8, ptr %data, i64 %offset
  %length = sub i64 %capacity, 4096
  %ignored = call i32 %madvise(ptr %start, i64 %length, i32 {getattr(mmap, "MADV_HUGEPAGE", 0)})
  br label %done
done:
  ret void
}}

define ptr @pullback_pool_malloc(ptr %pool, i64 %size) nounwind {{
entry:
  %absurd = icmp ugt i64 %size, {1 << 62}
  br i1 %absurd, label %none, label %start
start:
  %capacity = call i64 @capacity_of(i64 %size)
  %pooled = call i1 @is_pooled(ptr %pool, i64 %capacity)
  br i1 %pooled, label %search, label %fresh
search:
  %again = call ptr @take(ptr %pool, i64 %capacity)
  %found = icmp ne ptr %again, null
  %field = select i1 %found, i32 4, i32 5
  %tally = getelementptr i64, ptr %pool, i32 %field
  %previous = atomicrmw add ptr %tally, i64 1 monotonic, align 8
  br i1 %found, label %hit, label %fresh
hit:
  ret ptr %again
fresh:
  %number = phi i64 [ 0, %start ], [ %previous, %search ]
  %malloc_at = getelementptr %pool, ptr %pool, i64 0, i32 6
  %malloc = load ptr, ptr %malloc_at
  %extra = call i64 @extra(i64 %capacity)
  %all = add i64 %capacity, %extra
  %block = call ptr %malloc(i64 %all)
  %data = call ptr @place(ptr %block, i64 %capacity, i64 %number)
  %made = icmp ne ptr %data, null
  br i1 %made, label %advised, label %none
advised:
  call void @advise(ptr %pool, ptr %data, i64 %capacity)
  ret ptr %data
none:
  ret ptr null
}}

define ptr @pullback_pool_calloc(ptr %pool, i64 %count, i64 %each) nounwind {{
entry:
  %pair = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {{ i64, i1 }} %pair, 0
  %wrapped = extractvalue {{ i64, i1 }} %pair, 1
  %absurd = icmp ugt i64 %size, {1 << 62}
  %refused = or i1 %wrapped, %absurd
  br i1 %refused, label %none, label %start
start:
  %capacity = call i64 @capacity_of(i64 %size)
  %calloc_at = getelementptr %pool, ptr %pool, i64 0, i32 7
  %calloc = load ptr, ptr %calloc_at
  %extra = call i64 @extra(i64 %capacity)
  %all = add i64 %capacity, %extra
  %block = call ptr %calloc(i64 1, i64 %all)
  %data = call ptr @place(ptr %block, i64 %capacity, i64 0)
  ret ptr %data
none:
  ret ptr null
}}

define ptr @pullback_pool_realloc(ptr %pool, ptr %data, i64 %size) nounwind {{
entry:
  %absent = icmp eq ptr %data, null
  br i1 %absent, label %anew, label %compare
anew:
  %first = call ptr @pullback_pool_malloc(ptr %pool, i64 %size)
  ret ptr %first
compare:
  %capacity_at = getelementptr i8, ptr %data, i64 -8
  %had = load i64, ptr %capacity_at
  %wanted = call i64 @capacity_of(i64 %size)
  %same = icmp eq i64 %had, %wanted
  br i1 %same, label %keep, label %move
keep:
  ret ptr %data
move:
  %other = call ptr @pullback_pool_malloc(ptr %pool, i64 %size)
  %failed = icmp eq ptr %other, null
  br i1 %failed, label %none, label %copy
copy:
  %kept = call i64 @llvm.umin.i64(i64 %had, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %other, ptr %data, i64 %kept, i1 false)
  call void @pullback_pool_free(ptr %pool, ptr %data, i64 %had)
  ret ptr %other
none:
  ret ptr null
}}

define void @pullback_pool_free(ptr %pool, ptr %data, i64 %size) nounwind {{
entry:
  %absent = icmp eq ptr %data, null
  br i1 %absent, label %done, label %start
start:
  %capacity_at = getelementptr i8, ptr %data, i64 -8
  %capacity = load i64, ptr %capacity_at
  %pooled = call i1 @is_pooled(ptr %pool, i64 %capacity)
  br i1 %pooled, label %lock, label %give_back
lock:
  %locked = call i64 @pullback_pool_acquire(ptr %pool)
  %held = icmp ne i64 %locked, 0
  br i1 %held, label %look, label %give_back
look:
  %count_at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %count = load i64, ptr %count_at
  %bytes_at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %bytes = load i64, ptr %bytes_at
  %limit_at = getelementptr %pool, ptr %pool, i64 0, i32 3
  %limit = load i64, ptr %limit_at
  %more = add i64 %bytes, %capacity
  %light = icmp ule i64 %more, %limit
  %few = icmp ult i64 %count, {POOL_BLOCKS}
  %room = and i1 %light, %few
  br i1 %room, label %put, label %crowded
put:
  %at = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %count
  store ptr %data, ptr %at
  %size_at = getelementptr %block, ptr %at, i64 0, i32 1
  store i64 %capacity, ptr %size_at
  %counted = add i64 %count, 1
  store i64 %counted, ptr %count_at
  store i64 %more, ptr %bytes_at
  call void @pullback_pool_release(ptr %pool)
  ret void
crowded:
  call void @pullback_pool_release(ptr %pool)
  %keep = sub i64 %limit, %capacity
  %ignored = call i64 @evict(ptr %pool, i64 %keep, i64 {POOL_BLOCKS - 1})
  br label %lock
give_back:
  call void @to_library(ptr %pool, ptr %data)
  br label %done
done:
  ret void
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""
