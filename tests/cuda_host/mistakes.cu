// Bodies of a kernel k of one parameter, each with one mistake and what the stand-in says of it; 2 blocks of 64 threads run it.

//// half a block at a barrier (float* x): barrier at line 2 is reached by 20 of 64 threads
if (threadIdx.x < 20) __syncthreads();

//// two barriers (float* x): wait at different barriers
if (threadIdx.x < 20)
    __syncthreads();
else
    __syncthreads();

//// a mask without the caller (float* x): with mask 00000001, without itself
__shfl_sync(1u, 1, 0);

//// a lane that has returned (float* x): barrier at line 3
if (threadIdx.x % 32 == 7) return;
__syncthreads_count(0);
__shfl_sync(~0u, 1, 0);

//// a mask that names who has returned (float* x): line 3
if (threadIdx.x % 32 == 7) return;
__shfl_sync(~0u, 1, 0);

//// lanes that do not come (float* x): line 2
if (threadIdx.x % 32 < 7) __shfl_sync(~0u, 1, 0);
else __syncthreads();

//// two masks (float* x): by lane
__shfl_sync(threadIdx.x % 32 ? ~0u : 0x7fffffffu, 1, 0);

//// a misaligned load (float4* x): misaligned use of 'const struct float4'
float4 y = ((float4*)((float*)x + 1))[0];
x[1] = y;

//// a misaligned store (float4* x): needs a multiple of 16 bytes
((float4*)((float*)x + 2))[0] = float4();

//// behind a local array (float* x): out of bounds of 'float [4]'
float y[4] = {};
x[threadIdx.x] = y[threadIdx.x];

//// behind a shared array (float* x): out of bounds
__shared__ float y[8];
y[threadIdx.x] = 1;

//// a null pointer (float* x): null pointer
float* y = 0;
y[0] = 1;

//// a division by zero (int* x): division of 'int' by zero
x[threadIdx.x] = 5 / (int)(threadIdx.x / 64);

//// a shift past the width (int* x): a shift of 'int' by
x[threadIdx.x] = 1 << (threadIdx.x + 32);

//// a race for one place (float* x): a race: this thread writes global memory
x[0] = threadIdx.x;

//// a race between blocks (float* x): a race between blocks
if (threadIdx.x == 0) x[0] += 1;

//// shared memory that nobody wrote (float* x): no thread of the block has written
__shared__ float y[64];
if (threadIdx.x > 99) y[5] = 1;
x[threadIdx.x + 64 * blockIdx.x] = y[threadIdx.x];

//// a read before the barrier (float* x): shared memory
__shared__ float y[64];
y[threadIdx.x] = 0;
__syncthreads();
y[threadIdx.x] = 1;
x[threadIdx.x + 64 * blockIdx.x] = y[threadIdx.x ^ 1];

//// behind dynamic shared memory (float* x): behind the 128 bytes of dynamic
extern __shared__ float y[];
y[threadIdx.x] = 1;

//// a stack that is too long (float* x): the stack overflows
volatile char y[400000];
for (int n = 0; n < 400000; ++n) y[n] = 0;
x[0] = y[7];

//// an assertion (float* x): assertion failed at line 2: threadIdx.x < 5
assert(threadIdx.x < 5);

//// a trap (float* x): thread (9,0,0)
if (threadIdx.x == 9) __trap();
