/* What the machine can do: bytes read and written at a given mix, multiply-adds, calls of libmvec's functions. */

#include <math.h>

/* glibc declares the vector forms of libmvec under -ffast-math alone. */
#define VECTOR __attribute__((__simd__("notinbranch")))
VECTOR double exp(double);
VECTOR double log(double);
VECTOR double erf(double);
VECTOR float expf(float);
VECTOR float logf(float);
VECTOR float erff(float);
#include <omp.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define REGISTER 64
#define STREAM(p, v) _mm512_stream_pd((double *)(p), (__m512d)(v))
#elif defined(__AVX__)
#include <immintrin.h>
#define REGISTER 32
#define STREAM(p, v) _mm256_stream_pd((double *)(p), (__m256d)(v))
#else
#define REGISTER 16
#define STREAM(p, v) (*(volatile vector *)(p) = (v))
#endif
#define KEEP(p, v) (*(volatile vector *)(p) = (v))

typedef double vector __attribute__((vector_size(REGISTER)));
#define A_LINE (64 / REGISTER)

static double sink;

/* Walks `reads` and `writes` arrays of n lines at once, those of `in` and `out` one behind the other; writes are streamed past the
   caches or not. */
#define TRAFFIC(name, reads, writes, STORE)                                                             \
    void name(long lines, const vector *in, vector *out)                                                \
    {                                                                                                   \
        long n = lines * A_LINE;                                                                        \
        _Pragma("omp parallel")                                                                         \
        {                                                                                               \
            vector s[4] = {{0}, {1}, {2}, {3}};                                                         \
            _Pragma("omp for schedule(static)") for (long i = 0; i < n; i += A_LINE)                    \
            {                                                                                           \
                _Pragma("GCC unroll 4") for (int k = 0; k < reads; k++)                                 \
                    _Pragma("GCC unroll 4") for (int j = 0; j < A_LINE; j++) s[k] += in[k * n + i + j]; \
                _Pragma("GCC unroll 4") for (int k = 0; k < writes; k++)                                \
                    _Pragma("GCC unroll 4") for (int j = 0; j < A_LINE; j++)                            \
                        STORE(out + k * n + i + j, s[k]);                                               \
            }                                                                                           \
            s[0] += s[1] + s[2] + s[3];                                                                 \
            __asm__ volatile("" : : "m"(s[0]));                                                         \
        }                                                                                               \
    }

#define BOTH(reads, writes)                                    \
    TRAFFIC(streamed_##reads##_##writes, reads, writes, STREAM) \
    TRAFFIC(kept_##reads##_##writes, reads, writes, KEEP)

BOTH(4, 0)
BOTH(2, 0)
BOTH(4, 1)
BOTH(2, 1)
BOTH(2, 2)
BOTH(1, 1)
BOTH(0, 2)

/* Twelve chains of multiply-adds in registers; 4 cycles each and two at once would need eight. */
#define PEAK(name, REAL)                                                                                 \
    double name(long turns)                                                                              \
    {                                                                                                    \
        typedef REAL wide __attribute__((vector_size(REGISTER)));                                        \
        _Pragma("omp parallel")                                                                          \
        {                                                                                                \
            wide x = {0}, y, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1;                             \
            x += (REAL)0.999, y = x * (REAL)0.001;                                                       \
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = b0 = b1 = x;                               \
            for (long t = 0; t < turns; t++) {                                                           \
                a0 = a0 * x + y, a1 = a1 * x + y, a2 = a2 * x + y, a3 = a3 * x + y, a4 = a4 * x + y;     \
                a5 = a5 * x + y, a6 = a6 * x + y, a7 = a7 * x + y, a8 = a8 * x + y, a9 = a9 * x + y;     \
                b0 = b0 * x + y, b1 = b1 * x + y;                                                        \
                __asm__ volatile("" : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5));       \
                __asm__ volatile("" : "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(b0), "+v"(b1));       \
            }                                                                                            \
            a0 += a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + b0 + b1;                                  \
            if (a0[0] == 0.123456) sink = a0[0];                                                         \
        }                                                                                                \
        return 2.0 * (REGISTER / sizeof(REAL)) * 12 * turns * omp_get_max_threads();                     \
    }

PEAK(peak_float64, double)
PEAK(peak_float32, float)

/* Elements of a kilobyte each thread keeps, turns times. */
#define CALLS(function, name, REAL)                                                 \
    double name(long turns)                                                         \
    {                                                                               \
        _Pragma("omp parallel")                                                     \
        {                                                                           \
            REAL x[1024], y[1024];                                                  \
            for (int i = 0; i < 1024; i++) x[i] = 0.5 + i * 1e-3;                   \
            for (long t = 0; t < turns; t++) {                                      \
                _Pragma("omp simd") for (int i = 0; i < 1024; i++) y[i] = function(x[i]); \
                x[t & 1023] = y[(t + 7) & 1023] > 2 ? 1 : 0.75;                     \
                __asm__ volatile("" : : "r"(y) : "memory");                         \
            }                                                                       \
        }                                                                           \
        return 1024.0 * turns * omp_get_max_threads();                              \
    }

CALLS(exp, exp_float64, double)
CALLS(log, log_float64, double)
CALLS(erf, erf_float64, double)
CALLS(sqrt, sqrt_float64, double)
CALLS(expf, exp_float32, float)
CALLS(logf, log_float32, float)
CALLS(erff, erf_float32, float)
CALLS(sqrtf, sqrt_float32, float)
