"""Sorts and stable argsorts in CUDA C: LSD radix sorts with digits of eight bits.

Each pass takes three launches: count the elements of each chunk of a row with each digit, compute the target offset of each
chunk and digit, and move the elements, keeping equal digits in order. The order is therefore stable and independent of
threads. Rows are split into chunks as in scans; where each row is one chunk, a block sorts it in a single launch instead.
Passes over digits that no key reaches, by the known bound of the keys, are skipped, in pairs, so that the last pass writes the
result.
"""

from __future__ import annotations

from typing import Any

from pullback.codegen.cuda.source.launch import MANY_THREADS, THREADS, Cut
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import bare, stored_name
from pullback.codegen.cuda.source.split_launches import Stage
from pullback.codegen.cuda.source.statements import Writer
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, RefType
from pullback.ir.ops.library.sort import argsort_rows

DIGIT_BITS, DIGITS = 8, 256
"""Bits of a digit, and number of digits."""
LEAST_CHUNK = 8192
"""Least elements of a chunk of a sort."""
MOST_CHUNKS = 256
"""Most chunks of a sort."""


class SortText:
    """Writes the launches of sorts."""

    def __init__(self, emitter: LaunchWriter) -> None:
        self.e = emitter
        self.counts: dict[Instruction, int] = {}

    def write(self, w: Writer, stage_index: int, stage: Stage) -> dict[str, Any]:
        """Emit one launch of a sort; return arguments of ``Launch``."""
        i = stage.loop
        assert i is not None
        t = i.operands[0].type
        assert isinstance(t, RefType)
        w.comment(i.loc)
        if stage.kind == "sort_rows":
            return self.sort_rows(w, stage, i, t)
        rows, length = w.product(t.shape[:-1]), "" if stage.kind == "sort_begin" else w.size(t.shape[-1])
        if i not in self.counts:
            self.counts[i] = self.e.reserve(stage_index, "digits", I64, (DIGITS,))
        {"sort_count": self.count, "sort_begin": self.begin, "sort_place": self.move}[stage.kind](w, stage, i, rows, length)
        is_begin = stage.kind == "sort_begin"
        below = self.e.extent(i.operands[3]) if len(i.operands) > 3 else None
        least = 1 << 2 * DIGIT_BITS * (stage.sort_pass // 2)
        return {
            "threads": MANY_THREADS if is_begin else THREADS, "count": t.shape[:-1], "per_block": 1,
            "cut": Cut(length=t.shape[-1], least=LEAST_CHUNK, most=MOST_CHUNKS, is_whole=False, once=is_begin),
            "only": (below, least) if below is not None and least > 1 else None,
        }  # fmt: skip

    def sort_rows(self, w: Writer, stage: Stage, i: Instruction, t: RefType) -> dict[str, Any]:
        """Emit the launch in which a block sorts each row."""
        out, spare = (w.pointer(w.locations[v]) for v in i.operands[1:3])
        below = bare(w.value(i.operands[3])) if len(i.operands) > 3 else "-1"
        sizes = f"{w.product(t.shape[:-1])}, {w.size(t.shape[-1])}, {pass_count(i)}, {below}"
        w.line(f"pb_sort_rows({self.source(w, stage, i)}, {out}, {spare}, {sizes});")
        cut = Cut(length=t.shape[-1], least=LEAST_CHUNK, most=MOST_CHUNKS, is_whole=True)
        return {"threads": THREADS, "count": t.shape[:-1], "per_block": 1, "cut": cut}

    def digits(self, w: Writer, i: Instruction, is_stored: bool) -> str:
        return self.e.memory(w, self.counts[i], is_stored)

    def source(self, w: Writer, stage: Stage, i: Instruction) -> str:
        """Return, as C arguments, the array that a pass reads and the functor that returns its keys."""
        x, out, spare = (w.locations[v] for v in i.operands[:3])
        previous = "" if stage.sort_pass == 0 else w.pointer(spare if stage.sort_pass % 2 else out)
        if i.op is argsort_rows:
            return f"{previous or '(const long long*)0'}, pb_of_place<{stored_name(x.type.dtype)}>{{{w.pointer(x)}}}"
        return f"{previous or w.pointer(x)}, pb_of_value<{stored_name(x.type.dtype)}>{{}}"

    def shift(self, w: Writer, stage: Stage) -> str:
        """Return the bit offset of a pass's digit."""
        return w.parameter("shift", "int ", "number", stage.sort_pass * DIGIT_BITS)

    def count(self, w: Writer, stage: Stage, i: Instruction, rows: str, length: str) -> None:
        """Emit the launch that counts digits."""
        arguments = f"{rows}, {length}, {self.shift(w, stage)}, {self.digits(w, i, True)}"
        w.line(f"pb_count_digits({self.source(w, stage, i)}, {arguments});")

    def begin(self, w: Writer, stage: Stage, i: Instruction, rows: str, length: str) -> None:
        """Emit the launch that computes target offsets."""
        blocks = w.blocks(self.e.scratch[self.counts[i]].launch)
        w.line(f"pb_begin_digits({rows}, {blocks}, {self.digits(w, i, True)});")

    def move(self, w: Writer, stage: Stage, i: Instruction, rows: str, length: str) -> None:
        """Emit the launch that moves the elements."""
        out, spare = (w.locations[v] for v in i.operands[1:3])
        target = w.pointer(out if self.writes_result(stage, i) else spare)
        arguments = f"{rows}, {length}, {self.shift(w, stage)}, {self.digits(w, i, False)}"
        w.line(f"pb_place_digits({self.source(w, stage, i)}, {target}, {arguments});")

    def writes_result(self, stage: Stage, i: Instruction) -> bool:
        """Return whether a pass writes to the result rather than to the spare buffer: if its index is odd, or if it is the
        only one."""
        return stage.sort_pass % 2 == 1 or pass_count(i) == 1


def pass_count(i: Instruction) -> int:
    """Return the number of digits of a sort's keys."""
    return i.operands[0].type.dtype.bits // DIGIT_BITS


def written(stage: Stage) -> set[Any]:
    """Return the operands that a launch of a sort writes."""
    i = stage.loop
    assert i is not None
    if stage.kind == "sort_rows":
        return set(i.operands[1:3])
    if stage.kind != "sort_place":
        return set()
    return {i.operands[1] if stage.sort_pass % 2 == 1 or pass_count(i) == 1 else i.operands[2]}


SORTING = {
    "pb_rank": """\
// An integer that orders numbers: zeros are equal, and so are NaNs, the last.
template <class T> __device__ unsigned long long pb_rank(T x) {
    if constexpr (T(0.5) == T(0)) {
        unsigned long long sign = T(-1) < T(0) ? 1ULL << (8 * sizeof(T) - 1) : 0;
        return ((unsigned long long)x ^ sign) & ~0ULL >> (64 - 8 * sizeof(T));
    } else if constexpr (sizeof(T) == 8) {
        if (x != x) return ~0ULL;
        unsigned long long bits = pb_bitcast<unsigned long long>((double)x + 0.0);
        return bits >> 63 ? ~bits : bits | 1ULL << 63;
    } else {
        if (x != x) return 0xffffffffULL;
        unsigned bits = pb_bitcast<unsigned>((float)x + 0.0f);
        return bits >> 31 ? ~bits : bits | 1U << 31;
    }
}""",
    "pb_of_value": """\
// The keys of a sort of elements.
template <class T> struct pb_of_value {
    __device__ T element(const T* from, long long row, long long k) const { return from[row + k]; }
    __device__ unsigned long long key(T element, long long row) const { return pb_rank(element); }
};""",
    "pb_of_place": """\
// The keys of a sort of places of elements, which at first are those from 0 on.
template <class T> struct pb_of_place {
    const T* x;
    __device__ long long element(const long long* from, long long row, long long k) const { return from ? from[row + k] : k; }
    __device__ unsigned long long key(long long place, long long row) const { return pb_rank(x[row + place]); }
};""",
    "pb_count_digits": """\
// How many elements of each chunk have each digit; ``digits`` goes by row, digit and chunk. A block has 256 threads.
template <class E, class Keys>
__device__ void pb_count_digits(const E* from, Keys keys, long long rows, long long length, int shift, long long* digits) {
    __shared__ unsigned found[256];
    long long chunks = pb_chunks(gridDim.x, rows), size = pb_chunk_size(length, chunks, 256);
    for (long long unit = blockIdx.x; unit < rows * chunks; unit += gridDim.x) {
        long long row = unit / chunks, chunk = unit % chunks;
        long long first = chunk * size, end = first + size < length ? first + size : length;
        found[threadIdx.x] = 0;
        __syncthreads();
        for (long long k = first + threadIdx.x; k < end; k += 256)
            atomicAdd(&found[keys.key(keys.element(from, row * length, k), row * length) >> shift & 255], 1u);
        __syncthreads();
        digits[(row * 256 + threadIdx.x) * chunks + chunk] = found[threadIdx.x];
    }
}""",
    "pb_begin_digits": """\
// Where the elements of each digit and chunk go, from the beginning of their row on.
__device__ void pb_begin_digits(long long rows, long long blocks, long long* digits) {
    long long count = 256 * pb_chunks(blocks, rows);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        long long before = 0;
        for (long long base = 0; base < count; base += blockDim.x) {
            long long k = base + threadIdx.x;
            long long found = k < count ? digits[row * count + k] : 0;
            long long start = pb_scan<pb_add<long long>>(found, before);
            if (k < count) digits[row * count + k] = start;
        }
    }
}""",
    "pb_place_chunk": """\
// Moves elements to where those of their digit go, 256 at a time, equal digits in order. ``next``: the place for each digit.
template <class E, class Keys, class T>
__device__ void pb_place_chunk(const E* from, Keys keys, T* to, long long row, long long first, long long end, int shift,
                               long long* next) {
    __shared__ long long starts[8][256];
    __shared__ unsigned found[8][256];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (long long base = first; base < end; base += 256) {
        bool inside = base + threadIdx.x < end;
        for (int k = 0; k < 8; ++k) found[k][threadIdx.x] = 0;
        __syncthreads();
        T element = keys.element(from, row, inside ? base + threadIdx.x : end - 1);
        unsigned digit = inside ? (unsigned)(keys.key(element, row) >> shift & 255) : 256;
        unsigned equal = __match_any_sync(0xffffffffu, digit);
        int before = __popc(equal & ((1u << lane) - 1));
        if (inside && before == 0) found[warp][digit] = __popc(equal);
        __syncthreads();
        long long start = next[threadIdx.x];
        for (int k = 0; k < 8; ++k) {
            starts[k][threadIdx.x] = start;
            start += found[k][threadIdx.x];
        }
        next[threadIdx.x] = start;
        __syncthreads();
        if (inside) to[row + starts[warp][digit] + before] = element;
    }
}""",
    "pb_place_digits": """\
// Moves the elements of each chunk. A block has 256 threads.
template <class E, class Keys, class T>
__device__ void pb_place_digits(const E* from, Keys keys, T* to, long long rows, long long length, int shift,
                                const long long* digits) {
    __shared__ long long next[256];
    long long chunks = pb_chunks(gridDim.x, rows), size = pb_chunk_size(length, chunks, 256);
    for (long long unit = blockIdx.x; unit < rows * chunks; unit += gridDim.x) {
        long long row = unit / chunks, chunk = unit % chunks;
        long long first = chunk * size, end = first + size < length ? first + size : length;
        next[threadIdx.x] = digits[(row * 256 + threadIdx.x) * chunks + chunk];
        pb_place_chunk(from, keys, to, row * length, first, end, shift, next);
    }
}""",
    "pb_sort_rows": """\
// All turns of each row's sort, by a block of 256 threads.
template <class E, class Keys, class T>
__device__ void pb_sort_rows(const E* from, Keys keys, T* to, T* spare, long long rows, long long length, int turns,
                             long long below) {
    __shared__ long long next[256];
    __shared__ unsigned found[256];
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int turn = 0; turn < turns; ++turn) {
            if (turn && turn % 2 == 0 && below >= 0 && below <= 1LL << 8 * turn) break;
            const E* source = turn == 0 ? from : turn % 2 ? spare : to;
            found[threadIdx.x] = 0;
            __syncthreads();
            for (long long k = threadIdx.x; k < length; k += 256)
                atomicAdd(&found[keys.key(keys.element(source, row * length, k), row * length) >> 8 * turn & 255], 1u);
            __syncthreads();
            long long before = 0;
            next[threadIdx.x] = pb_scan<pb_add<long long>>((long long)found[threadIdx.x], before);
            pb_place_chunk(source, keys, turn % 2 || turns == 1 ? to : spare, row * length, 0, length, 8 * turn, next);
            __syncthreads();
        }
    }
}""",
}
"""The device functions of sorts, in an order in which callees come first."""
