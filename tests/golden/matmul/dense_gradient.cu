// A thread for each sum of a small product.
extern "C" __global__ void k0_0(
        const double* __restrict__ x, const double* __restrict__ s, const double* __restrict__ d,
        const double* __restrict__ h, const double* __restrict__ g, double* __restrict__ out, long long s0,
        long long s1, long long s2) {
    for (long long n = pb_first(); n < s0 * s2; n += pb_step()) {
        long long i0 = n / s2, j0_2 = n % s2;
        double sum = 0;
        for (long long p = 0; p < s1; ++p) {
            double t = x[p * s0 + i0];
            double t2 = s[p];
            double t3 = t * t2;
            double t4 = h[p * s2 + j0_2];
            bool t5 = t4 > 0.0;
            double t6 = t5 ? d[p * s2 + j0_2] : 0.0;
            sum = fma(t3, t6, sum);
        }
        double t7 = g[i0 * s2 + j0_2];
        double t8 = t7 + sum;
        out[i0 * s2 + j0_2] = t8;
    }
}

// A block for each large tile of the product.
extern "C" __global__ void __launch_bounds__(256, 2) k0_1(
        const double* __restrict__ x, const double* __restrict__ s, const double* __restrict__ d,
        const double* __restrict__ h, const double* __restrict__ g, double* __restrict__ out, long long s0,
        long long s1, long long s2) {
    using unit = pb_unit_f64<128, 64, 8>;
    auto left = [&](long long i, long long p) {
        double t = x[p * s0 + i];
        double t2 = s[p];
        double t3 = t * t2;
        return t3;
    };
    auto right = [&](long long p0, long long j) {
        double t4 = h[p0 * s2 + j];
        bool t5 = t4 > 0.0;
        double t6 = t5 ? d[p0 * s2 + j] : 0.0;
        return t6;
    };
    auto each = [&](long long i0, long long j0_2, double sum) {
        double t7 = g[i0 * s2 + j0_2];
        double t8 = t7 + sum;
        out[i0 * s2 + j0_2] = t8;
    };
    pb_product<unit, false, false>(left, right, each, s0, s2, s1, blockIdx.x);
}

// A block for each small tile of the product, or for each part of the terms of one.
extern "C" __global__ void __launch_bounds__(256, 3) k0_2(
        const double* __restrict__ x, const double* __restrict__ s, const double* __restrict__ d,
        const double* __restrict__ h, const double* __restrict__ g, double* __restrict__ out, long long s0,
        long long s1, long long s2, double* __restrict__ kept, int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    auto left = [&](long long i, long long p) {
        double t = x[p * s0 + i];
        double t2 = s[p];
        double t3 = t * t2;
        return t3;
    };
    auto right = [&](long long p0, long long j) {
        double t4 = h[p0 * s2 + j];
        bool t5 = t4 > 0.0;
        double t6 = t5 ? d[p0 * s2 + j] : 0.0;
        return t6;
    };
    auto each = [&](long long i0, long long j0_2, double sum) {
        double t7 = g[i0 * s2 + j0_2];
        double t8 = t7 + sum;
        out[i0 * s2 + j0_2] = t8;
    };
    pb_product<unit, false, false>(left, right, each, s0, s2, s1, blockIdx.x / parts, blockIdx.x % parts, parts, kept);
}

// A thread for each sum joins its parts.
extern "C" __global__ void k0_4(
        const double* __restrict__ g, double* __restrict__ out, long long s0, long long s1, long long s2,
        const double* __restrict__ kept, int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    for (long long n2 = pb_first(); n2 < s0 * s2; n2 += pb_step()) {
        long long i0 = n2 / s2, j0_2 = n2 % s2;
        double sum = pb_joined<unit>(kept, i0, j0_2, s2, parts);
        double t7 = g[i0 * s2 + j0_2];
        double t8 = t7 + sum;
        out[i0 * s2 + j0_2] = t8;
    }
}
