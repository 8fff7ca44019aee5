/* The loops of loops.h for double and float. libmvec gives the vector functions, by the simd pragmas. */

#include <math.h>

/* glibc declares the vector forms of libmvec under -ffast-math alone. */
#define VECTOR __attribute__((__simd__("notinbranch")))
VECTOR double exp(double);
VECTOR double log(double);
VECTOR double erf(double);
VECTOR float expf(float);
VECTOR float logf(float);
VECTOR float erff(float);

#define REAL double
#define NAME(g) g
#define FUNCTION(f) f##_float64
#include "loops.h"

#undef REAL
#undef NAME
#undef FUNCTION
#define REAL float
#define NAME(g) g##f
#define FUNCTION(f) f##_float32
#include "loops.h"
