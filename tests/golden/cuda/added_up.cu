// The first index of a thread, and how far the next one is, where all threads of a grid share out a loop.
__device__ long long pb_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long pb_step() { return (long long)gridDim.x * blockDim.x; }

template <class T, class S> __device__ T pb_bitcast(S x) {
    static_assert(sizeof(T) == sizeof(S), "a bitcast keeps the size");
    union { S from; T to; } bits;
    bits.from = x;
    return bits.to;
}

__device__ unsigned pb_bits(float x) { return pb_bitcast<unsigned>(x); }
__device__ unsigned long long pb_bits(double x) { return pb_bitcast<unsigned long long>(x); }

// A sum that moves its partial sums up every 64 and every 4,096 terms, so that no chain of additions is long.
template <class T> struct pb_sum {
    T low = 0, middle = 0, high = 0;
    unsigned count = 0;
    __device__ void add(T x) {
        low += x;
        count += 1;
        if (count % 64 == 0) { middle += low; low = 0; }
        if (count % 4096 == 0) { high += middle; middle = 0; }
    }
    __device__ T total() const { return (high + middle) + low; }
};

// Elements that lie side by side, moved as one word where they may be: their number is a power of two, of at most 16 bytes.
template <int bytes> struct pb_word { typedef uint4 type; };
template <> struct pb_word<8> { typedef uint2 type; };
template <> struct pb_word<4> { typedef unsigned type; };
template <> struct pb_word<2> { typedef unsigned short type; };
template <class T, int N> struct alignas(N * sizeof(T)) pb_pack { T at[N]; };
template <int N, class T> __device__ bool pb_is_whole(const T* place, int count) {
    return count == N && (unsigned long long)place % (N * sizeof(T)) == 0;
}

// How many elements a pack has: ``width``, or what is left.
template <int N> __device__ int pb_count(long long left, int width) { return left < width ? (int)left : width; }

// A pack of so many elements; the rest of it are the first one again. ``whole``: it is known to lie as a word does.
template <int N, class T> __device__ pb_pack<T, N> pb_read(const T* place, int count, bool whole = false) {
    typedef typename pb_word<N * sizeof(T)>::type word;
    word found;
    if (whole || pb_is_whole<N>(place, count)) {
        found = *(const word*)place;
    } else {
        pb_pack<T, N> each;
        for (int k = 0; k < N; ++k) each.at[k] = place[k < count ? k : 0];
        found = pb_bitcast<word>(each);
    }
    return pb_bitcast<pb_pack<T, N>>(found);
}

template <int N, class T> __device__ void pb_write(T* place, pb_pack<T, N> given, int count, bool whole = false) {
    if (whole || pb_is_whole<N>(place, count)) {
        typedef typename pb_word<N * sizeof(T)>::type word;
        *(word*)place = pb_bitcast<word>(given);
        return;
    }
    for (int k = 0; k < N; ++k)
        if (k < count) place[k] = given.at[k];
}

template <class T> __device__ T pb_down(T x, int distance) { return (T)__shfl_down_sync(0xffffffffu, x, distance); }

// The combination of what all threads of a block give, in a fixed tree: lanes of a warp by halves, then the warps in order.
template <auto combine, class T> __device__ T pb_block(T x) {
    __shared__ T warps[32];
    for (int distance = 16; distance; distance /= 2) x = combine(x, pb_down(x, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    T all = warps[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) all = combine(all, warps[warp]);
    return all;
}

// What the threads before one give, combined with what comes before them all, in a fixed tree. ``before`` takes in all threads.
template <auto combine, class T> __device__ T pb_scan(T x, T& before) {
    __shared__ T warps[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int distance = 1; distance < 32; distance *= 2) {
        T left = (T)__shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x = combine(left, x);
    }
    __syncthreads();
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    T left = (T)__shfl_up_sync(0xffffffffu, x, 1), all = before, mine = before;
    for (int k = 0; k < blockDim.x / 32; ++k) {
        if (k == warp) mine = all;
        all = combine(all, warps[k]);
    }
    before = all;
    return lane ? combine(mine, left) : mine;
}

// Into how many chunks each of so many lines is cut if so many units share them out, and how many steps a chunk has.
__device__ long long pb_chunks(long long units, long long lines) { return lines && units > lines ? units / lines : 1; }
__device__ long long pb_chunk_size(long long steps, long long chunks, long long multiple) {
    long long size = (steps + chunks - 1) / chunks;
    return (size + multiple - 1) / multiple * multiple;
}

template <class T> __device__ T pb_rem(T x, T y) {
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return 0;
    return x % y;
}

// Whether a quotient rounded to zero is one above the floor.
template <class T> __device__ bool pb_goes_down(T remainder, T y) {
    return remainder != T(0) && (remainder < T(0)) != (y < T(0));
}

template <class T> __device__ T pb_mod(T x, T y) {
    if constexpr (T(0.5) == T(0)) {
        T remainder = pb_rem(x, y);
        return pb_goes_down(remainder, y) ? (T)(remainder + y) : remainder;
    } else {
        T remainder = fmod(x, y);
        if (y == T(0)) return remainder;
        if (remainder == T(0)) return copysign(T(0), y);
        return pb_goes_down(remainder, y) ? remainder + y : remainder;
    }
}

// NaN wins; +0 is above -0: of two equal ones, the bits that both have.
template <class T> __device__ T pb_maximum(T x, T y) {
#if __CUDA_ARCH__ >= 800 && !defined(__CUDA_HOST__)
    if constexpr (T(0.5) != T(0) && sizeof(T) == 4) {
        T found;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
        return found;
    }
#endif
    T equal = x;
    if constexpr (T(0.5) != T(0) && sizeof(T) >= 4) equal = pb_bitcast<T>(pb_bits(x) & pb_bits(y));
    return x == y ? equal : x > y || x != x ? x : y;
}

template <class T> __device__ bool pb_below(T x, T n) {
    return (unsigned long long)x < (unsigned long long)n;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

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
}

// The keys of a sort of places of elements, which at first are those from 0 on.
template <class T> struct pb_of_place {
    const T* x;
    __device__ long long element(const long long* from, long long row, long long k) const { return from ? from[row + k] : k; }
    __device__ unsigned long long key(long long place, long long row) const { return pb_rank(x[row + place]); }
};

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
}

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
}

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
}

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
}

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
}

// A thread for each element.
extern "C" __global__ void k0(long long* __restrict__ at, long long c0, long long s0, int width) {
    for (long long first = width * pb_first(); first < s0; first += width * pb_step()) {
        int count = pb_count<2>(s0 - first, width);
        pb_pack<long long, 2> at_2;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            long long i = first + k;
            // bins.py:1
            long long at2 = pb_mod(i, c0);
            at_2.at[k] = at2;
        }
        pb_write(&at[first], at_2, count);
    }
}

// A thread for each element.
extern "C" __global__ void k1_0(const double* __restrict__ base, double* __restrict__ out, long long s0, int width) {
    for (long long first = width * pb_first(); first < s0; first += width * pb_step()) {
        int count = pb_count<2>(s0 - first, width);
        pb_pack<double, 2> base_2 = pb_read<2>(&base[first], count);
        pb_pack<double, 2> out_2;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            // bins.py:2
            double t = base_2.at[k];
            out_2.at[k] = t;
        }
        pb_write(&out[first], out_2, count);
    }
}

// A thread for each element.
extern "C" __global__ void k1_1(
        const long long* __restrict__ x0, long long* __restrict__ keys, long long s0, long long s1, int width) {
    for (long long first2 = width * pb_first(); first2 < s1; first2 += width * pb_step()) {
        int count2 = pb_count<2>(s1 - first2, width);
        pb_pack<long long, 2> x0_2 = pb_read<2>(&x0[first2], count2);
        pb_pack<long long, 2> keys_2;
#pragma unroll
        for (int k3 = 0; k3 < 2; ++k3) {
            // bins.py:2
            long long t2 = x0_2.at[k3];
            bool t3 = t2 < 0LL;
            long long t4 = (long long)((unsigned long long)t2 + (unsigned long long)s0);
            long long t5 = t3 ? t4 : t2;
            bool t6 = pb_below(t5, s0);
            long long t7 = t6 ? t5 : 0LL;
            keys_2.at[k3] = t7;
        }
        pb_write(&keys[first2], keys_2, count2);
    }
}

// A block sorts a row.
extern "C" __global__ void k1_2(
        long long* __restrict__ order, const long long* __restrict__ keys, long long* __restrict__ spare,
        long long s0, long long s1) {
    // bins.py:2
    pb_sort_rows((const long long*)0, pb_of_place<long long>{keys}, order, spare, 1, s1, 8, s0);
}

// How many elements of each chunk have each digit: a block for each chunk.
extern "C" __global__ void k1_3(
        const long long* __restrict__ keys, long long s0, long long s1, int shift, long long* __restrict__ digits) {
    // bins.py:2
    pb_count_digits((const long long*)0, pb_of_place<long long>{keys}, 1, s1, shift, digits);
}

// Where elements of each digit and chunk go: a block for each row.
extern "C" __global__ void k1_4(long long s0, long long* __restrict__ digits, long long blocks) {
    // bins.py:2
    pb_begin_digits(1, blocks, digits);
}

// Elements go there: a block for each chunk.
extern "C" __global__ void k1_5(
        const long long* __restrict__ keys, long long* __restrict__ spare, long long s0, long long s1, int shift,
        const long long* __restrict__ digits) {
    // bins.py:2
    pb_place_digits((const long long*)0, pb_of_place<long long>{keys}, spare, 1, s1, shift, digits);
}

// How many elements of each chunk have each digit: a block for each chunk.
extern "C" __global__ void k1_6(
        const long long* __restrict__ keys, const long long* __restrict__ spare, long long s0, long long s1,
        int shift, long long* __restrict__ digits) {
    // bins.py:2
    pb_count_digits(spare, pb_of_place<long long>{keys}, 1, s1, shift, digits);
}

// Elements go there: a block for each chunk.
extern "C" __global__ void k1_8(
        long long* __restrict__ order, const long long* __restrict__ keys, const long long* __restrict__ spare,
        long long s0, long long s1, int shift, const long long* __restrict__ digits) {
    // bins.py:2
    pb_place_digits(spare, pb_of_place<long long>{keys}, order, 1, s1, shift, digits);
}

// How many elements of each chunk have each digit: a block for each chunk.
extern "C" __global__ void k1_9(
        const long long* __restrict__ order, const long long* __restrict__ keys, long long s0, long long s1,
        int shift, long long* __restrict__ digits) {
    // bins.py:2
    pb_count_digits(order, pb_of_place<long long>{keys}, 1, s1, shift, digits);
}

// Elements go there: a block for each chunk.
extern "C" __global__ void k1_11(
        const long long* __restrict__ order, const long long* __restrict__ keys, long long* __restrict__ spare,
        long long s0, long long s1, int shift, const long long* __restrict__ digits) {
    // bins.py:2
    pb_place_digits(order, pb_of_place<long long>{keys}, spare, 1, s1, shift, digits);
}

// A thread for each element.
extern "C" __global__ void k1_27(
        long long* __restrict__ ends, const long long* __restrict__ order, const long long* __restrict__ keys,
        long long s0, long long s1) {
    for (long long r = pb_first(); r < s0; r += pb_step()) {
        long long t8 = 0LL;
        for (long long n = 0; n < 48; ++n) {
            // bins.py:2
            long long t9 = 47 - n;
            long long t10 = (long long)((unsigned long long)1LL << (unsigned long long)t9);
            long long t11 = (long long)((unsigned long long)t8 + (unsigned long long)t10);
            bool t12 = t11 <= s1;
            long long t13 = (long long)((unsigned long long)t11 - (unsigned long long)1LL);
            long long t14 = t12 ? order[t13] : 0LL;
            long long t15 = t12 ? keys[t14] : 0LL;
            bool t16 = t15 <= r;
            bool t17 = t12 & t16;
            long long t18 = t17 ? t11 : t8;
            t8 = t18;
        }
        ends[r] = t8;
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k1_28(
        const double* __restrict__ x1, double* __restrict__ out, const long long* __restrict__ ends,
        const long long* __restrict__ order, long long s0) {
    for (long long r2 = blockIdx.x; r2 < s0; r2 += gridDim.x) {
        // bins.py:2
        bool t19 = r2 > 0LL;
        long long t20 = r2 - 1;
        long long t21 = t19 ? ends[t20] : 0LL;
        long long t22 = ends[r2];
        long long t23 = (long long)((unsigned long long)t22 - (unsigned long long)t21);
        long long t24 = pb_maximum(t23, 0LL);
        pb_sum<double> add_part;
        for (long long first3 = 2 * threadIdx.x; first3 < t24; first3 += 2 * blockDim.x) {
            int count3 = pb_count<2>(t24 - first3, 2);
            // bins.py:2
            long long t25 = (long long)((unsigned long long)t21 + (unsigned long long)first3);
            pb_pack<long long, 2> order_2 = pb_read<2>(&order[t25], count3);
            double add_2 = 0;
#pragma unroll
            for (int k5 = 0; k5 < 2; ++k5) {
                if (k5 < count3) {
                    // bins.py:2
                    long long t26 = order_2.at[k5];
                    double t27 = x1[t26];
                    add_2 += t27;
                }
            }
            add_part.add(add_2);
        }
        double add_all = pb_block<pb_add<double>>(add_part.total());
        // bins.py:2
        double t28 = out[r2];
        double t29 = t28 + add_all;
        bool t30 = t24 > 0LL;
        __syncthreads();
        if (threadIdx.x == 0 && t30) out[r2] = t29;
        __syncthreads();
    }
}
