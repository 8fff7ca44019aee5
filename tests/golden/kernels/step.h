/*
 * step, compiled by pullback VERSION for TARGET.
 *
 * One step of descent on the network's output.
 *
 * Arrays are dense and row-major. The caller owns all memory: arguments are read, results are written to memory of the
 * caller's, which overlaps nothing else. Calls may come from several threads at once.
 */

#ifndef STEP_H
#define STEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What calls return. Larger statuses are checks of the function that failed: see the end of this file. */
enum {
    STEP_OK = 0,
    STEP_NO_MEMORY = 1, /* there is no memory for temporary arrays */
    STEP_BAD_EXTENT = 2, /* an extent is outside the range that the function serves */
    STEP_NOT_READY = 3, /* a function that the header lists was not given to step_init */
    STEP_WRONG_CPU = 4, /* this processor lacks instructions that the code was made for */
    STEP_INTERRUPTED = 5 /* the call was interrupted */
};

/*
 * What the object may use of its host's. step_init copies it; call it before the first call, not during one.
 * All zero but for the first field is a runtime too: one thread, and memory of the C library's.
 */
typedef struct step_runtime {
    int64_t size;                /* sizeof(step_runtime) */
    int64_t threads;             /* how many threads parallel_for uses; results do not depend on it */
    void *user;                  /* passed to the functions that take it */
    /* Calls body(data, k) once for each k from 0 to count - 1, in any order, on any threads; returns after all. */
    void (*parallel_for)(void *user, void (*body)(void *data, int64_t k), void *data, int64_t count);
    /* Around each call of BLAS and LAPACK, which are to run on the calling thread alone; from any thread. */
    void (*before_library)(void *user);
    void (*after_library)(void *user);
    void *(*reallocate)(void *block, size_t bytes); /* as realloc */
    void (*release)(void *block);                   /* as free */
    const void *poll;            /* of pullback's own; NULL */
} step_runtime;

/* Returns 0, or why calls will not run. It need not be called. */
int64_t step_init(const step_runtime *runtime);

/*
 * The function. Extents, arguments, results:
 *
 *   k: an extent, from 0 on
 *   m: an extent, from 0 on
 *   n: an extent, from 0 on
 *   p_w: f64[k, m], p['w']
 *   p_b: f64[m], p['b']
 *   x: f64[n, k]
 *   rate: f64[]
 *   result_w: f64[k, m], result['w'], written
 *   result_b: f64[m], result['b'], written
 */
int64_t step(
    int64_t k,
    int64_t m,
    int64_t n,
    const double *p_w,
    const double *p_b,
    const double *x,
    double rate,
    double *result_w,
    double *result_b);

/* The same with the addresses of extents, arguments and results in arrays; numbers by their addresses too. */
int64_t step_call(const int64_t *extents, const void *const *arguments, void *const *results);

/* Writes the shape of a result, by its number from 0 on (result_w, result_b), and returns its rank; -1 for another number. */
int64_t step_result_shape(int64_t result, const int64_t *extents, int64_t *shape);

/* What a status means; memory of the object's. */
const char *step_error(int64_t status);

/* What pb.load reads. */
extern const char step_manifest[];

#ifdef __cplusplus
}
#endif

#endif /* STEP_H */
