// What a warp does together with tiles of a matrix, and copies to shared memory that go on beside the thread that began them: the
// instructions mma.sync, ldmatrix and cp.async, under the names by which emitted text wraps them. Included by device.h.
//
// Of a tile, lane 4 g + t has by PTX's tables: of D, and of C, rows g and g + 8 of columns 2 t and 2 t + 1; the rest is below.
#pragma once

#define pb_mma_m16n8k16_f16(...) cuda_host_mma<16, cuda_host_from_f16>(__LINE__, __VA_ARGS__)
#define pb_mma_m16n8k16_bf16(...) cuda_host_mma<16, cuda_host_from_bf16>(__LINE__, __VA_ARGS__)
#define pb_mma_m16n8k8_tf32(...) cuda_host_mma<8, cuda_host_from_tf32>(__LINE__, __VA_ARGS__)
#define pb_mma_m8n8k4_f64(...) cuda_host_mma_f64(__LINE__, __VA_ARGS__)
#define pb_ldmatrix_x2(...) cuda_host_ldmatrix<false>(__LINE__, __VA_ARGS__)
#define pb_ldmatrix_x4(...) cuda_host_ldmatrix<false>(__LINE__, __VA_ARGS__)
#define pb_ldmatrix_x2_trans(...) cuda_host_ldmatrix<true>(__LINE__, __VA_ARGS__)
#define pb_ldmatrix_x4_trans(...) cuda_host_ldmatrix<true>(__LINE__, __VA_ARGS__)
#define pb_cp_async16(...) cuda_host_copy_16(__LINE__, __VA_ARGS__)
#define pb_cp_async_commit() cuda_host_copy_commit()

#define CUDA_HOST_UNSEEN static __attribute__((no_sanitize("thread")))  // it reads what lanes hold in registers

// the elements of tiles: half a word, or a word, as a float

static inline float cuda_host_from_f16(unsigned bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
    return bits >> 15 & 1 ? -size : size;
}
static inline float cuda_host_from_bf16(unsigned bits) { return cuda_host_cast<float>(bits << 16); }
static inline float cuda_host_from_tf32(unsigned bits) {  // rounds a float to 11 bits, ties away from zero, as cvt.rna.tf32.f32
    return cuda_host_cast<float>((bits >> 23 & 255) == 255 ? bits : (bits + 0x1000) & ~0x1fffu);
}

// products: 16 x K times K x 8, rows of A and columns of B; sums in the order of K

struct cuda_host_fragments { float* d; const unsigned *a, *b; };

template <int K, float number(unsigned)> CUDA_HOST_UNSEEN void cuda_host_mma_all(void** lanes) {
    constexpr int each = K / 8, half = each == 2 ? 16 : 0;  // elements of a word
    auto element = [](const unsigned* words, int high, int k) {
        unsigned word = words[high];
        return number(half ? word >> half * (k % each) & 0xffff : word);
    };
    auto lane = [&](int n) { return (const cuda_host_fragments*)lanes[n]; };
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
            float& d = lane(row % 8 * 4 + column / 2)->d[row / 8 * 2 + column % 2];
            float sum = d;
            for (int k = 0; k < K; ++k) {
                int inside = k % (K / 2), high = k / (K / 2), t = inside / each;
                sum += element(lane(row % 8 * 4 + t)->a, row / 8 + 2 * high, k) * element(lane(column * 4 + t)->b, high, k);
            }
            d = sum;
        }
    }
}

template <int K, float number(unsigned)>
static inline void cuda_host_mma(int line, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    float mine[4] = {d[0], d[1], d[2], d[3]};
    cuda_host_fragments given = {mine, a, b};
    cuda_host_together(line, "mma.sync", cuda_host_mma_all<K, number>, &given);
    for (int n = 0; n < 4; ++n) d[n] = mine[n];
}

struct cuda_host_fragments_f64 { double d[2], a, b; };

CUDA_HOST_UNSEEN void cuda_host_mma_all_f64(void** lanes) {
    auto lane = [&](int n) { return (cuda_host_fragments_f64*)lanes[n]; };
    for (int row = 0; row < 8; ++row) {
        for (int column = 0; column < 8; ++column) {
            double& d = lane(row * 4 + column / 2)->d[column % 2];
            for (int k = 0; k < 4; ++k) d = fma(lane(row * 4 + k)->a, lane(column * 4 + k)->b, d);
        }
    }
}

static inline void cuda_host_mma_f64(int line, double (&d)[2], double a, double b) {
    cuda_host_fragments_f64 given = {{d[0], d[1]}, a, b};
    cuda_host_together(line, "mma.sync", cuda_host_mma_all_f64, &given);
    d[0] = given.d[0], d[1] = given.d[1];
}

// N tiles of 8 x 8 halves of a word: lane 8 m + r gives where row r of tile m is

template <int N> struct cuda_host_rows { unsigned short row[8]; unsigned found[N]; };

template <int N, bool turned> CUDA_HOST_UNSEEN void cuda_host_ldmatrix_all(void** lanes) {
    for (int lane = 0; lane < 32; ++lane) {
        for (int tile = 0; tile < N; ++tile) {
            unsigned word = 0;
            for (int half = 0; half < 2; ++half) {
                int row = lane / 4, column = lane % 4 * 2 + half;
                if (turned) std::swap(row, column);
                word |= (unsigned)((cuda_host_rows<N>*)lanes[tile * 8 + row])->row[column] << 16 * half;
            }
            ((cuda_host_rows<N>*)lanes[lane])->found[tile] = word;
        }
    }
}

template <bool turned, int N> static inline void cuda_host_ldmatrix(int line, unsigned (&words)[N], const void* row) {
    static_assert(N == 2 || N == 4, "two or four tiles");
    cuda_host_rows<N> given = {};
    if (threadIdx.x % 32 < 8 * N) {  // the others' rows are not read
        cuda_host_shared_16(line, "ldmatrix", row);
        memcpy(given.row, (const uint4*)row, 16);
    }
    cuda_host_together(line, "ldmatrix", cuda_host_ldmatrix_all<N, turned>, &given);
    for (int n = 0; n < N; ++n) words[n] = given.found[n];
}

// copies: what was at the place may be gone from the beginning on, and what comes is there only behind the wait

static inline void cuda_host_copy_16(int line, void* place, const void* from, bool valid) {
    cuda_host_shared_16(line, "cp.async", place);
    if (valid) {
        cuda_host_multiple_of_16(line, "cp.async", from);
        (void)*(volatile const unsigned long long*)from, (void)((volatile const unsigned long long*)from)[1];
    }
    *(uint4*)place = {~0u, ~0u, ~0u, ~0u};
    cuda_host_copy_begin(place, valid ? from : nullptr);
}

template <int N> static inline void pb_cp_async_wait() {
    void* place;
    const void* from;
    while (cuda_host_copy_next(N, &place, &from)) *(uint4*)place = from ? *(const uint4*)from : uint4{0, 0, 0, 0};
}
