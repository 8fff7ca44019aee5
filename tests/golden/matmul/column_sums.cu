// A thread for each element.
extern "C" __global__ void k0_0(
        double* __restrict__ sums, double* __restrict__ most, long long s2, long long s3, int width) {
    long long packs = (s2 + width - 1) / width;
    for (long long n = pb_first(); n < s3 * packs; n += pb_step()) {
        long long a = n / packs, first = n % packs * width;
        int count = pb_count<2>(s2 - first, width);
        pb_pack<double, 2> sums_2;
        pb_pack<double, 2> most_2;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            sums_2.at[k] = 0.0;
            most_2.at[k] = (-PB_INF);
        }
        pb_write(&sums[a * s2 + first], sums_2, count);
        pb_write(&most[a * s2 + first], most_2, count);
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0_1(
        const double* __restrict__ x, const double* __restrict__ s, const double* __restrict__ w,
        double* __restrict__ sums, double* __restrict__ most, long long s0, long long s1, long long s2) {
    long long t = s0 + 63;
    long long t2 = t >> 6LL;
    for (long long b2 = blockIdx.x; b2 < t2; b2 += gridDim.x) {
        long long t3 = b2 * 64;
        long long t4 = s0 - t3;
        long long t5 = pb_minimum(t4, 64LL);
        for (long long r = 0; r < t5; ++r) {
            long long i = t3 + r;
            for (long long j = threadIdx.x; j < s2; j += blockDim.x) {
                pb_sum<double> add_part;
                for (long long p = 0; p < s1; ++p) {
                    double t6 = x[i * s1 + p];
                    double t7 = w[p * s2 + j];
                    double t8 = t6 * t7;
                    add_part.add(t8);
                }
                double t9 = add_part.total();
                double t10 = s[i];
                double t11 = t9 * t10;
                double t12 = sums[b2 * s2 + j];
                double t13 = t12 + t11;
                sums[b2 * s2 + j] = t13;
                double t14 = most[b2 * s2 + j];
                double t15 = pb_maximum(t14, t11);
                most[b2 * s2 + j] = t15;
            }
        }
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0_2(
        const double* __restrict__ sums, const double* __restrict__ most, double* __restrict__ out, long long s2,
        long long s3) {
    for (long long j1_2 = blockIdx.x; j1_2 < s2; j1_2 += gridDim.x) {
        pb_sum<double> add_part2;
        double maximum_part = (-PB_INF);
#pragma unroll 4
        for (long long a0 = threadIdx.x; a0 < s3; a0 += blockDim.x) {
            double t16 = sums[a0 * s2 + j1_2];
            double t17 = most[a0 * s2 + j1_2];
            add_part2.add(t16);
            maximum_part = pb_maximum(maximum_part, t17);
        }
        double add_all2 = pb_block<pb_add<double>>(add_part2.total());
        double maximum_all = pb_block<pb_maximum<double>>(maximum_part);
        __syncthreads();
        if (threadIdx.x == 0) out[j1_2] = add_all2;
        __syncthreads();
        if (threadIdx.x == 0) out[1 * s2 + j1_2] = maximum_all;
        __syncthreads();
    }
}
