// Bodies of a kernel k of one parameter without a mistake, though they come near to one; 4 blocks of 64 threads run it.
// i is the number of the thread, y shared.

//// partial masks (float* x):
if (threadIdx.x % 32 < 8) x[i] = __shfl_xor_sync(0xffu, x[i], 1);
else x[i] = 0;

//// a barrier in a loop (float* x):
for (int n = 0; n < 3; ++n) {
    y[threadIdx.x] = x[i] + n;
    __syncthreads();
    x[i] = y[63 - threadIdx.x];
    __syncthreads();
}

//// a warp in step (float* x):
y[threadIdx.x] = x[i];
__syncwarp();
float z = y[threadIdx.x ^ 1];
__syncwarp();
y[threadIdx.x] = z;
x[i] = z;

//// an atomic sum (float* x):
__shared__ int n;
if (threadIdx.x == 0) n = 0;
__syncthreads();
atomicAdd(&n, 1);
__syncthreads();
x[i] = n;

//// a vote (float* x):
x[i] = __ballot_sync(~0u, threadIdx.x & 1) == 0xaaaaaaaau && __any_sync(~0u, threadIdx.x == 40) == (threadIdx.x >= 32);

//// every thread reads one word (float* x):
if (threadIdx.x == 0) y[0] = blockIdx.x;
__syncthreads();
x[i] = y[0];
__syncthreads();
y[threadIdx.x] = 0;
