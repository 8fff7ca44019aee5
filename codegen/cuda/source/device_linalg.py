"""Routines of BLAS and LAPACK in CUDA C, each run by one block: for many small matrices.

A routine takes LAPACK's arguments, in that order, without factors and work arrays that it does not need: matrices are
column-major, with leading dimension ``ld``. All threads of a block call it; it begins and ends with a barrier. The order of
summation depends on the extents only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source.launch import UNKNOWN_EXTENT, Operand, Routine
from pullback.codegen.cuda.source.names import stored_name
from pullback.ir.core.op import Op
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import RefType, Shape
from pullback.ir.ops.library.routines import Library

FEWEST_THREADS = 32
"""Least threads of a block: a warp."""

_COMPLEX = """\
// A complex number as it lies in memory, and what numbers of both kinds have in common.
template <class R> struct pb_complex { R re, im; };
template <class T> struct pb_parts {
    typedef T real;
    static __device__ T of(T x) { return x; }
};
template <class R> struct pb_parts<pb_complex<R>> {
    typedef R real;
    static __device__ pb_complex<R> of(R x) { return {x, R(0)}; }
};
template <class R> __device__ pb_complex<R> operator+(pb_complex<R> x, pb_complex<R> y) { return {x.re + y.re, x.im + y.im}; }
template <class R> __device__ pb_complex<R> operator-(pb_complex<R> x, pb_complex<R> y) { return {x.re - y.re, x.im - y.im}; }
template <class R> __device__ pb_complex<R> operator*(pb_complex<R> x, pb_complex<R> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class R> __device__ pb_complex<R> operator/(pb_complex<R> x, pb_complex<R> y) {
    if (fabs(y.re) >= fabs(y.im)) {
        R ratio = y.im / y.re, scale = y.re + y.im * ratio;
        return {(x.re + x.im * ratio) / scale, (x.im - x.re * ratio) / scale};
    }
    R ratio = y.re / y.im, scale = y.re * ratio + y.im;
    return {(x.re * ratio + x.im) / scale, (x.im * ratio - x.re) / scale};
}
template <class T> __device__ T pb_re(T x) { return x; }
template <class R> __device__ R pb_re(pb_complex<R> x) { return x.re; }
template <class T> __device__ T pb_im(T) { return T(0); }
template <class R> __device__ R pb_im(pb_complex<R> x) { return x.im; }
template <class T> __device__ T pb_conj(T x) { return x; }
template <class R> __device__ pb_complex<R> pb_conj(pb_complex<R> x) { return {x.re, -x.im}; }
template <class T> __device__ T pb_reach(T x) { return fabs(x); }
template <class R> __device__ R pb_reach(pb_complex<R> x) { return fabs(x.re) + fabs(x.im); }
template <class T> __device__ T pb_square(T x) { return x * x; }
template <class R> __device__ R pb_square(pb_complex<R> x) { return x.re * x.re + x.im * x.im; }
template <class T> __device__ T pb_times(T x, T y) { return x * y; }
template <class R> __device__ pb_complex<R> pb_times(pb_complex<R> x, R y) { return {x.re * y, x.im * y}; }
template <class T> __device__ T pb_over(T x, T y) { return x / y; }
template <class R> __device__ pb_complex<R> pb_over(pb_complex<R> x, R y) { return {x.re / y, x.im / y}; }
// The sum of what the lanes of a warp give, in all of them.
template <class T> __device__ T pb_lanes(T x) {
    for (int distance = 16; distance; distance /= 2) x = x + (T)__shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}
template <class R> __device__ pb_complex<R> pb_lanes(pb_complex<R> x) { return {pb_lanes(x.re), pb_lanes(x.im)}; }"""

_POTRF = """\
// a = u^H u; info: 0, or the order of the first leading minor that is not positive.
template <class T> __device__ void pb_potrf(char, int n, T* a, int ld, int* info) {
    typedef typename pb_parts<T>::real R;
    __syncthreads();
    if (threadIdx.x == 0) *info = 0;
    for (int k = 0; k < n; ++k) {
        R pivot = pb_re(a[k + k * ld]);
        __syncthreads();
        if (!(pivot > 0)) {
            if (threadIdx.x == 0) *info = k + 1;
            break;
        }
        R root = sqrt(pivot);
        for (int j = k + threadIdx.x; j < n; j += blockDim.x)
            a[k + j * ld] = j == k ? pb_parts<T>::of(root) : pb_times(a[k + j * ld], R(1) / root);
        __syncthreads();
        int rest = n - k - 1;
        for (int e = threadIdx.x; e < rest * rest; e += blockDim.x) {
            int i = k + 1 + e % rest, j = k + 1 + e / rest;
            if (i <= j) a[i + j * ld] = a[i + j * ld] - pb_conj(a[k + i * ld]) * a[k + j * ld];
        }
        __syncthreads();
    }
    __syncthreads();
}"""

_GETRF = """\
// a = p l u; info: 0, or the first place of the diagonal of u that is 0. Equal pivots: the first.
template <class T> __device__ void pb_getrf(int m, int n, T* a, int ld, int* pivots, int* info) {
    typedef typename pb_parts<T>::real R;
    __shared__ int chosen;
    __syncthreads();
    if (threadIdx.x == 0) *info = 0;
    int least = m < n ? m : n;
    for (int k = 0; k < least; ++k) {
        if (threadIdx.x < 32) {
            R best = -1;
            int at = k;
            for (int i = k + threadIdx.x; i < m; i += 32) {
                R reach = pb_reach(a[i + k * ld]);
                if (reach > best) { best = reach; at = i; }
            }
            for (int distance = 16; distance; distance /= 2) {
                R other = __shfl_down_sync(0xffffffffu, best, distance);
                int place = __shfl_down_sync(0xffffffffu, at, distance);
                if (other > best || (other == best && place < at)) { best = other; at = place; }
            }
            if (threadIdx.x == 0) {
                chosen = at;
                pivots[k] = at + 1;
                if (best == 0 && *info == 0) *info = k + 1;
            }
        }
        __syncthreads();
        int p = chosen;
        if (p != k)
            for (int j = threadIdx.x; j < n; j += blockDim.x) {
                T x = a[k + j * ld];
                a[k + j * ld] = a[p + j * ld];
                a[p + j * ld] = x;
            }
        __syncthreads();
        T pivot = a[k + k * ld];
        if (pb_reach(pivot) != 0)
            for (int i = k + 1 + threadIdx.x; i < m; i += blockDim.x) a[i + k * ld] = a[i + k * ld] / pivot;
        __syncthreads();
        int rows = m - k - 1, rest = rows * (n - k - 1);
        for (int e = threadIdx.x; e < rest; e += blockDim.x) {
            int i = k + 1 + e % rows, j = k + 1 + e / rows;
            a[i + j * ld] = a[i + j * ld] - a[i + k * ld] * a[k + j * ld];
        }
        __syncthreads();
    }
    __syncthreads();
}"""

_TRSM = """\
// x = x op(a)^-1, of m rows; op(a) is upper if it goes forward.
template <class T>
__device__ void pb_trsm(char, char triangle, char op, char diagonal, int m, int n, const T* a, int ld, T* x, int ldx) {
    bool turned = op == 'T', forward = (triangle == 'U') != turned;
    __syncthreads();
    for (int step = 0; step < n; ++step) {
        int k = forward ? step : n - 1 - step, first = forward ? k + 1 : 0, rest = n - 1 - step;
        if (diagonal == 'N')
            for (int i = threadIdx.x; i < m; i += blockDim.x) x[i + k * ldx] = x[i + k * ldx] / a[k + k * ld];
        __syncthreads();
        for (int e = threadIdx.x; e < rest * m; e += blockDim.x) {
            int i = e % m, j = first + e / m;
            x[i + j * ldx] = x[i + j * ldx] - x[i + k * ldx] * (turned ? a[j + k * ld] : a[k + j * ld]);
        }
        __syncthreads();
    }
}"""

_TRSV = """\
// x = op(a)^-1 x, of one column: the row by the transposed matrix.
template <class T> __device__ void pb_trsv(char triangle, char op, char diagonal, int n, const T* a, int ld, T* x, int) {
    pb_trsm('R', triangle, op == 'T' ? 'N' : 'T', diagonal, 1, n, a, ld, x, 1);
}"""

_GESV = """\
// x = a^-1 x; a becomes its factors.
template <class T> __device__ void pb_gesv(int n, int columns, T* a, int ld, int* pivots, T* x, int ldx, int* info) {
    pb_getrf(n, n, a, ld, pivots, info);
    if (*info) return;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        T* own = x + (long long)c * ldx;
        for (int k = 0; k < n; ++k) {
            T at = own[pivots[k] - 1];
            own[pivots[k] - 1] = own[k];
            own[k] = at;
        }
        for (int k = 0; k < n; ++k)
            for (int i = k + 1; i < n; ++i) own[i] = own[i] - a[i + k * ld] * own[k];
        for (int k = n - 1; k >= 0; --k) {
            own[k] = own[k] / a[k + k * ld];
            for (int i = 0; i < k; ++i) own[i] = own[i] - a[i + k * ld] * own[k];
        }
    }
    __syncthreads();
}"""

_REFLECT = """\
// Columns from ``first`` to n, from row k on, minus scale v v^H of them; v is 1 at row k and column k of a below.
template <class T> __device__ void pb_reflect(int m, int n, int k, int first, T* a, int ld, T scale) {
    int lane = threadIdx.x % 32;
    for (int j = first + threadIdx.x / 32; j < n; j += blockDim.x / 32) {
        T sum = pb_parts<T>::of(0);
        for (int i = k + 1 + lane; i < m; i += 32) sum = sum + pb_conj(a[i + k * ld]) * a[i + j * ld];
        T top = a[k + j * ld];
        sum = scale * (top + pb_lanes(sum));
        __syncwarp();
        if (lane == 0) a[k + j * ld] = top - sum;
        for (int i = k + 1 + lane; i < m; i += 32) a[i + j * ld] = a[i + j * ld] - sum * a[i + k * ld];
    }
}"""

_GEQRF = """\
// R, and below it the vectors of the reflections that make it, with signs as LAPACK's.
template <class T> __device__ void pb_geqrf(int m, int n, T* a, int ld, T* scales, int* info) {
    typedef typename pb_parts<T>::real R;
    __syncthreads();
    if (threadIdx.x == 0) *info = 0;
    int least = m < n ? m : n;
    for (int k = 0; k < least; ++k) {
        R most = 0, sum = 0;
        for (int i = k + 1 + threadIdx.x; i < m; i += blockDim.x) most = pb_maximum(most, pb_reach(a[i + k * ld]));
        most = pb_block<pb_maximum<R>>(most);
        if (most > 0)
            for (int i = k + 1 + threadIdx.x; i < m; i += blockDim.x) sum += pb_square(pb_over(a[i + k * ld], most));
        R norm = most * sqrt(pb_block<pb_add<R>>(sum));
        T head = a[k + k * ld], scale = pb_parts<T>::of(0);
        __syncthreads();
        if (norm != 0 || pb_im(head) != 0) {
            R size = hypot(hypot(pb_re(head), pb_im(head)), norm), target = pb_re(head) > 0 ? -size : size;
            if (pb_re(head) == 0) target = -size;
            scale = pb_over(pb_parts<T>::of(target) - head, target);
            T factor = head - pb_parts<T>::of(target);
            for (int i = k + 1 + threadIdx.x; i < m; i += blockDim.x) a[i + k * ld] = a[i + k * ld] / factor;
            head = pb_parts<T>::of(target);
        }
        if (threadIdx.x == 0) {
            a[k + k * ld] = head;
            scales[k] = scale;
        }
        __syncthreads();
        pb_reflect(m, n, k, k + 1, a, ld, pb_conj(scale));
        __syncthreads();
    }
    __syncthreads();
}"""

_ORGQR = """\
// The first n columns of Q, of ``count`` reflections.
template <class T> __device__ void pb_orgqr(int m, int n, int count, T* a, int ld, const T* scales, int* info) {
    typedef typename pb_parts<T>::real R;
    __syncthreads();
    if (threadIdx.x == 0) *info = 0;
    for (int e = threadIdx.x; e < m * (n - count); e += blockDim.x) {
        int i = e % m, j = count + e / m;
        a[i + j * ld] = pb_parts<T>::of(i == j);
    }
    __syncthreads();
    for (int k = count - 1; k >= 0; --k) {
        T scale = scales[k];
        pb_reflect(m, n, k, k + 1, a, ld, scale);
        __syncthreads();
        for (int i = threadIdx.x; i < m; i += blockDim.x) {
            T x = a[i + k * ld];
            a[i + k * ld] = i < k ? pb_parts<T>::of(0) : i > k ? pb_times(scale * x, R(-1)) : pb_parts<T>::of(1) - scale;
        }
        __syncthreads();
    }
}"""

_SYEVD = """\
// Eigenvalues, ascending, and eigenvectors, columns in place of a, by Jacobi's rotations; ``v``: room for n by n. A thread orders
// one column. info: 0, or 1 where rotations do not come to an end; of a matrix that is not finite all is NaN.
template <class T>
__device__ void pb_syevd(char, char triangle, int n, T* a, int ld, typename pb_parts<T>::real* values, T* v, int, int* info) {
    typedef typename pb_parts<T>::real R;
    __syncthreads();
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) {
        int i = e % n, j = e / n;
        if (i == j) a[i + j * ld] = pb_parts<T>::of(pb_re(a[i + j * ld]));
        else if ((i < j) == (triangle == 'L')) a[i + j * ld] = pb_conj(a[j + i * ld]);
        v[e] = pb_parts<T>::of(i == j);
    }
    __syncthreads();
    R most = 0, sum = 0;
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) most = pb_maximum(most, pb_reach(a[e % n + e / n * ld]));
    most = pb_block<pb_maximum<R>>(most);
    if (most > 0)
        for (int e = threadIdx.x; e < n * n; e += blockDim.x) sum += pb_square(pb_over(a[e % n + e / n * ld], most));
    R least = most * sqrt(pb_block<pb_add<R>>(sum)) * (sizeof(R) == 8 ? R(2.8e-17) : R(1.5e-8));
    bool is_done = false, is_finite = most - most == 0;
    __syncthreads();
    for (int sweep = 0; sweep < 60 && !is_done && is_finite; ++sweep) {
        is_done = true;
        for (int p = 0; p < n; ++p)
            for (int q = p + 1; q < n; ++q) {
                T beside = a[p + q * ld];
                R size = hypot(pb_re(beside), pb_im(beside));
                if (!(size > least)) continue;
                is_done = false;
                R half = (pb_re(a[q + q * ld]) - pb_re(a[p + p * ld])) / (2 * size);
                R tangent = (half < 0 ? -1 : 1) / (fabs(half) + hypot(half, R(1)));
                R c = 1 / hypot(tangent, R(1));
                T s = pb_times(pb_over(beside, size), tangent * c);
                __syncthreads();
                for (int k = threadIdx.x; k < 2 * n; k += blockDim.x) {
                    T* row = k < n ? a + k : v + (k - n);
                    int step = k < n ? ld : n;
                    T x = row[p * step], y = row[q * step];
                    row[p * step] = pb_times(x, c) - pb_conj(s) * y;
                    row[q * step] = s * x + pb_times(y, c);
                }
                __syncthreads();
                for (int k = threadIdx.x; k < n; k += blockDim.x) {
                    T x = a[p + k * ld], y = a[q + k * ld];
                    T above = pb_times(x, c) - s * y, below = pb_conj(s) * x + pb_times(y, c);
                    a[p + k * ld] = k == q ? pb_parts<T>::of(0) : k == p ? pb_parts<T>::of(pb_re(above)) : above;
                    a[q + k * ld] = k == p ? pb_parts<T>::of(0) : k == q ? pb_parts<T>::of(pb_re(below)) : below;
                }
                __syncthreads();
            }
    }
    int place = 0, own = threadIdx.x;
    R value = 0;
    if (own < n) {
        value = pb_re(a[own + own * ld]);
        for (int k = 0; k < n; ++k) {
            R other = pb_re(a[k + k * ld]);
            place += other < value || (other == value && k < own);
        }
    }
    __syncthreads();
    if (own < n && !is_finite) place = own;
    if (own < n) {
        values[place] = is_finite ? value : R(PB_NAN);
        for (int i = 0; i < n; ++i) a[i + place * ld] = is_finite ? v[i + own * n] : pb_parts<T>::of(R(PB_NAN));
    }
    if (own == 0) *info = is_finite && !is_done;
    __syncthreads();
}"""

_GEMM = """\
// c = op(a) op(b), by one block.
template <class T>
__device__ void pb_gemm_block(char ta, char tb, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c, int ldc) {
    __syncthreads();
    for (int e = threadIdx.x; e < m * n; e += blockDim.x) {
        int i = e % m, j = e / m;
        T sum = pb_parts<T>::of(0);
        for (int l = 0; l < k; ++l)
            sum = sum + (ta == 'T' ? a[l + i * lda] : a[i + l * lda]) * (tb == 'T' ? b[j + l * ldb] : b[l + j * ldb]);
        c[i + j * ldc] = sum;
    }
    __syncthreads();
}"""

ROUTINES: dict[str, str] = {
    "pb_parts": _COMPLEX, "pb_potrf": _POTRF, "pb_getrf": _GETRF, "pb_trsm": _TRSM, "pb_trsv": _TRSV, "pb_gesv": _GESV,
    "pb_reflect": _REFLECT, "pb_geqrf": _GEQRF, "pb_orgqr": _ORGQR, "pb_syevd": _SYEVD, "pb_gemm_block": _GEMM,
}  # fmt: skip
"""The routines and their helper functions, in an order in which callees come first."""

_OWN_NAMES = {"gemm": "pb_gemm_block"}
"""Names of routines that differ from ``pb_`` and the op's name."""


def has_routine(op: Op) -> bool:
    """Return whether a routine exists in CUDA C."""
    return _OWN_NAMES.get(op.name, f"pb_{op.name}") in ROUTINES


def call_text(i: Instruction, pointers: list[str], size: Any) -> str:
    """Return the call of a routine. ``pointers``: to its operands; ``size(extent)`` returns the text of an extent. Raises
    NotImplementedError."""
    op = i.op
    assert isinstance(op, Library)
    if not has_routine(op):
        raise NotImplementedError(f"{op.name} has no CUDA spelling")
    refs = [v.type for v in i.operands]
    pairs = op.pairs(refs)
    texts: list[str] = []
    for kind, *rest in op.arguments({**i.params, "complex": bool(pairs)}):
        if kind == "number" or (kind != "integer" and kind != "letter" and rest[0] in op.work):
            continue
        shape = _shape(refs[rest[0]], rest[0] in pairs) if kind in ("extent", "lead", "product") else ()
        match kind:
            case "letter":
                texts.append(f"'{rest[0]}'")
            case "integer":
                texts.append(str(rest[0]))
            case "extent":
                texts.append(size(shape[rest[1]]))
            case "lead":
                texts.append(size(shape[-1]))
            case "ref":
                t = refs[rest[0]]
                assert isinstance(t, RefType)
                is_read = rest[0] not in op.writes
                element_type = f"pb_complex<{stored_name(t.dtype)}>"
                cast = f"({'const ' if is_read else ''}{element_type}*)" if rest[0] in pairs else ""
                texts.append(f"{cast}{pointers[rest[0]]}")
            case _:
                raise NotImplementedError(f"{op.name} has no CUDA spelling")
    return f"{_OWN_NAMES.get(op.name, f'pb_{op.name}')}({', '.join(texts)});"


def _shape(t: Any, is_complex: bool) -> Shape:
    shape: Shape = t.shape[:-1] if is_complex else t.shape
    return shape


def threads_of(i: Instruction) -> Shape:
    """Return the extents whose elements are distributed over a block's threads: the shape of the largest operand that is no
    work array."""
    op = i.op
    assert isinstance(op, Library)
    refs = [v.type for v in i.operands]
    shapes = [_shape(t, k in op.pairs(refs)) for k, t in enumerate(refs) if k not in op.work]
    return max(shapes, key=len)


def routine_of(kernel: Function, loops: Loops, nest: Sequence[Instruction], call: Instruction, batch: Shape) -> Routine | None:
    """Return a library call in loops over a batch as a routine that a device library can run; None if its arguments are not
    dense or not indexed by the batch counters in order."""
    op = call.op
    assert isinstance(op, Library)
    if not op.ranks:
        return None
    counters = tuple(i.regions[0].parameters[0] for i in nest)
    refs = [v.type for v in call.operands]
    pairs = op.pairs(refs)
    operands = []
    for position, value in enumerate(call.operands):
        root, index = loops.root_and_index(value)
        t = root.type
        if root not in kernel.parameters or not isinstance(t, RefType) or t.layout != "c" or index not in ((), counters):
            return None
        shape = _shape(refs[position], position in pairs)
        operands.append(Operand(position=kernel.parameters.index(root), shape=shape, is_batched=bool(index)))
    if UNKNOWN_EXTENT in batch:
        return None
    return Routine(
        name=op.name, dtype=refs[0].dtype.name, is_complex=bool(pairs), params=tuple(sorted(call.params.items())),
        operands=tuple(operands), batch=batch,
    )  # fmt: skip
