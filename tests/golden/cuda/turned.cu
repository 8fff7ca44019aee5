// A block for each tile of 32 by 32 elements.
extern "C" __global__ void k0(
        const double* __restrict__ x, const double* __restrict__ v, double* __restrict__ out0, long long s0,
        long long s1) {
    __shared__ double x_tile[32][33];
    int column = threadIdx.x % 32, step = blockDim.x / 32;
    long long tiles = (s1 + 31) / 32;
    long long tiles2 = (s0 + 31) / 32;
    for (long long tile = blockIdx.x; tile < tiles * tiles2; tile += gridDim.x) {
        long long first_i = (tile / tiles2) * 32, first_j = (tile % tiles2) * 32;
        for (int row = threadIdx.x / 32; row < 32; row += step) {
            long long j = first_j + row, i = first_i + column;
            if (j < s0 && i < s1) {
                x_tile[row][column] = x[j * s1 + i];
            }
        }
        __syncthreads();
        for (int row = threadIdx.x / 32; row < 32; row += step) {
            long long i = first_i + row, j = first_j + column;
            if (i < s1 && j < s0) {
                double v2 = v[j];
                // turn.py:3
                double x2 = x_tile[column][row];
                double t = x2 * v2;
                out0[i * s0 + j] = t;
            }
        }
        __syncthreads();
    }
}
