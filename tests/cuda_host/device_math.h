// Functions of CUDA's library that the host's has not, or has by another name. Included by device.h.
#pragma once
#include <cmath>

static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rcbrt(double x) { return 1 / cbrt(x); }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline double sinpi(double x) { return sinl(fmod(x, 2) * M_PIl); }
static inline double cospi(double x) { return cosl(fmod(x, 2) * M_PIl); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
static inline double cyl_bessel_i0(double x) { return fabs(x) < 713 ? std::cyl_bessel_i(0.0, fabs(x)) : x * x * 1e308; }
static inline double cyl_bessel_i1(double x) { return fabs(x) < 713 ? copysign(std::cyl_bessel_i(1.0, fabs(x)), x) : x * fabs(x) * 1e308; }
static inline float cyl_bessel_i0f(float x) { return cyl_bessel_i0(x); }
static inline float cyl_bessel_i1f(float x) { return cyl_bessel_i1(x); }
template <class T> static inline T min(T x, T y) { return y < x ? y : x; }
template <class T> static inline T max(T x, T y) { return x < y ? y : x; }
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }
static inline double min(double x, double y) { return fmin(x, y); }
static inline double max(double x, double y) { return fmax(x, y); }

// in long double and by Newton's method

static inline double normcdf(double x) { return erfcl(x * -M_SQRT1_2l) / 2; }

static inline double erfcx(double x) {
    if (x < 50) return expl((long double)x * x) * erfcl(x);
    return isinf(x) ? 0 : (1 - 0.5l / x / x + 0.75l / x / x / x / x) / x / sqrtl(M_PIl);
}

static inline double erfinv(double y);

static inline double erfcinv(double y) {
    if (y > 0.5 && y < 1.5) return erfinv(1 - y);
    if (y > 1) return -erfcinv(2 - y);
    if (!(y > 0)) return y == 0 ? INFINITY : NAN;
    long double x = sqrtl(-logl(y)), q = logl(y);
    for (int k = 0; k < 60; ++k) x += (logl(erfcl(x)) - q) * erfcl(x) * expl(x * x) * sqrtl(M_PIl) / 2;
    return x;
}

static inline double erfinv(double y) {
    if (y <= -0.5) return -erfcinv(1 + y);
    if (y >= 0.5) return erfcinv(1 - y);
    long double x = y * sqrtl(M_PIl) / 2;
    for (int k = 0; k < 20; ++k) x += (y - erfl(x)) * expl(x * x) * sqrtl(M_PIl) / 2;
    return x;
}

static inline double normcdfinv(double p) { return erfcinv(2 * p) * -M_SQRT2l; }
