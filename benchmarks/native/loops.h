/* Loops by hand, for one type: REAL, and NAME(f) for the names of the type's functions. Outputs are arrays made once. */

#define LOG NAME(log)
#define EXP NAME(exp)
#define ERF NAME(erf)
#define SQRT NAME(sqrt)
#define LOG1P NAME(log1p)

REAL FUNCTION(black_scholes_fwd)(long n, const REAL *spot, const REAL *strike, const REAL *years, const REAL *rate, const REAL *sigma)
{
    REAL total = 0;
#pragma omp parallel for simd reduction(+ : total)
    for (long i = 0; i < n; i++) {
        REAL s = spot[i], k = strike[i], t = years[i], r = rate[i], v = sigma[i];
        REAL root = v * SQRT(t);
        REAL d1 = (LOG(s / k) + (r + (REAL)0.5 * v * v) * t) / root;
        REAL phi1 = (REAL)0.5 * (1 + ERF(d1 * (REAL)0.7071067811865476));
        REAL phi2 = (REAL)0.5 * (1 + ERF((d1 - root) * (REAL)0.7071067811865476));
        total += s * phi1 - k * EXP(-r * t) * phi2;
    }
    return total;
}

REAL FUNCTION(black_scholes_grad)(long n, const REAL *spot, const REAL *strike, const REAL *years, const REAL *rate,
                                  const REAL *sigma, REAL *d_spot, REAL *d_strike, REAL *d_years, REAL *d_rate, REAL *d_sigma)
{
    REAL total = 0;
#pragma omp parallel for simd reduction(+ : total)
    for (long i = 0; i < n; i++) {
        REAL s = spot[i], k = strike[i], t = years[i], r = rate[i], v = sigma[i];
        REAL root_t = SQRT(t), root = v * root_t;
        REAL d1 = (LOG(s / k) + (r + (REAL)0.5 * v * v) * t) / root;
        REAL phi1 = (REAL)0.5 * (1 + ERF(d1 * (REAL)0.7071067811865476));
        REAL phi2 = (REAL)0.5 * (1 + ERF((d1 - root) * (REAL)0.7071067811865476));
        REAL discounted = EXP(-r * t) * phi2, owed = k * discounted;
        REAL vega = s * EXP((REAL)-0.5 * d1 * d1) * root_t * (REAL)0.3989422804014327;
        total += s * phi1 - owed;
        d_spot[i] = phi1;
        d_strike[i] = -discounted;
        d_years[i] = (REAL)0.5 * vega * v / t + r * owed;
        d_rate[i] = t * owed;
        d_sigma[i] = vega;
    }
    return total;
}

void FUNCTION(chain_map)(long n, const REAL *x, const REAL *y, REAL *out)
{
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) out[i] = x[i] * y[i] + (REAL)0.5 * x[i] * x[i] * y[i] - y[i] * y[i] * x[i];
}

REAL FUNCTION(chain_fwd)(long n, const REAL *x, const REAL *y)
{
    REAL total = 0;
#pragma omp parallel for simd reduction(+ : total)
    for (long i = 0; i < n; i++) total += x[i] * y[i] + (REAL)0.5 * x[i] * x[i] * y[i] - y[i] * y[i] * x[i];
    return total;
}

REAL FUNCTION(chain_grad)(long n, const REAL *x, const REAL *y, REAL *dx, REAL *dy)
{
    REAL total = 0;
#pragma omp parallel for simd reduction(+ : total)
    for (long i = 0; i < n; i++) {
        REAL a = x[i], b = y[i];
        total += a * b + (REAL)0.5 * a * a * b - b * b * a;
        dx[i] = b + a * b - b * b;
        dy[i] = a + (REAL)0.5 * a * a - 2 * a * b;
    }
    return total;
}

/* The sum of exp(z - top) over a row, its terms into e unless that is null. */
static inline REAL FUNCTION(exponentials)(long columns, const REAL *z, REAL top, REAL *e)
{
    REAL total = 0;
    if (!e) {
#pragma omp simd reduction(+ : total)
        for (long j = 0; j < columns; j++) total += EXP(z[j] - top);
        return total;
    }
#pragma omp simd reduction(+ : total)
    for (long j = 0; j < columns; j++) {
        e[j] = EXP(z[j] - top);
        total += e[j];
    }
    return total;
}

static inline REAL FUNCTION(largest)(long n, const REAL *z)
{
    REAL top = z[0];
#pragma omp simd reduction(max : top)
    for (long j = 0; j < n; j++) top = z[j] > top ? z[j] : top;
    return top;
}

REAL FUNCTION(xent_fwd)(long rows, long columns, const REAL *z, const long *y)
{
    REAL value = 0;
#pragma omp parallel for reduction(+ : value)
    for (long i = 0; i < rows; i++) {
        const REAL *row = z + i * columns;
        REAL top = FUNCTION(largest)(columns, row);
        value += LOG(FUNCTION(exponentials)(columns, row, top, 0)) + top - row[y[i]];
    }
    return value / rows;
}

REAL FUNCTION(xent_grad)(long rows, long columns, const REAL *z, const long *y, REAL *dz)
{
    REAL value = 0;
#pragma omp parallel for reduction(+ : value)
    for (long i = 0; i < rows; i++) {
        const REAL *row = z + i * columns;
        REAL *out = dz + i * columns, top = FUNCTION(largest)(columns, row);
        REAL total = FUNCTION(exponentials)(columns, row, top, out), scale = 1 / (total * rows);
        value += LOG(total) + top - row[y[i]];
#pragma omp simd
        for (long j = 0; j < columns; j++) out[j] *= scale;
        out[y[i]] -= (REAL)1 / rows;
    }
    return value / rows;
}

static inline REAL FUNCTION(moments)(long n, const REAL *x, REAL *mean)
{
    REAL total = 0, square = 0;
#pragma omp simd reduction(+ : total)
    for (long j = 0; j < n; j++) total += x[j];
    REAL middle = total / n;
#pragma omp simd reduction(+ : square)
    for (long j = 0; j < n; j++) square += (x[j] - middle) * (x[j] - middle);
    *mean = middle;
    return 1 / SQRT(square / n + (REAL)1e-5);
}

void FUNCTION(layer_norm_fwd)(long rows, long columns, const REAL *x, const REAL *gain, const REAL *bias, REAL *out)
{
#pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        const REAL *row = x + i * columns;
        REAL mean, scale = FUNCTION(moments)(columns, row, &mean);
#pragma omp simd
        for (long j = 0; j < columns; j++) out[i * columns + j] = (row[j] - mean) * scale * gain[j] + bias[j];
    }
}

/* gains and biases (parts, columns) take the sums over the rows of each part. */
REAL FUNCTION(layer_norm_grad)(long rows, long columns, long parts, const REAL *x, const REAL *gain, const REAL *bias,
                               const REAL *c, REAL *dx, REAL *gains, REAL *biases)
{
    REAL value = 0;
#pragma omp parallel for reduction(+ : value)
    for (long part = 0; part < parts; part++) {
        REAL *d_gain = gains + part * columns, *d_bias = biases + part * columns;
        for (long j = 0; j < columns; j++) d_gain[j] = d_bias[j] = 0;
        for (long i = part * rows / parts; i < (part + 1) * rows / parts; i++) {
            const REAL *row = x + i * columns, *given = c + i * columns;
            REAL mean, scale = FUNCTION(moments)(columns, row, &mean), first = 0, second = 0, shift = 0;
#pragma omp simd reduction(+ : first, second, shift)
            for (long j = 0; j < columns; j++) {
                REAL normal = (row[j] - mean) * scale, d = given[j] * gain[j];
                first += d;
                second += d * normal;
                shift += given[j] * bias[j];
                d_gain[j] += given[j] * normal;
                d_bias[j] += given[j];
            }
            value += second + shift;
            first /= columns;
            second /= columns;
#pragma omp simd
            for (long j = 0; j < columns; j++)
                dx[i * columns + j] = scale * (given[j] * gain[j] - first - (row[j] - mean) * scale * second);
        }
    }
    return value;
}

static inline REAL FUNCTION(dot)(long n, const REAL *a, const REAL *b)
{
    REAL z = 0;
#pragma omp simd reduction(+ : z)
    for (long j = 0; j < n; j++) z += a[j] * b[j];
    return z;
}

/* sums (parts, columns) take the gradient's share of each part of the rows; null: no gradient. */
REAL FUNCTION(logreg)(long rows, long columns, long parts, const REAL *w, const REAL *x, const REAL *y, REAL *sums)
{
    REAL value = 0;
#pragma omp parallel for reduction(+ : value)
    for (long part = 0; part < parts; part++) {
        REAL *sum = sums ? sums + part * columns : 0;
        for (long j = 0; sum && j < columns; j++) sum[j] = 0;
        for (long i = part * rows / parts; i < (part + 1) * rows / parts; i++) {
            const REAL *row = x + i * columns;
            REAL z = FUNCTION(dot)(columns, row, w), small = EXP(z > 0 ? -z : z);
            value += (z > 0 ? z : 0) + LOG1P(small) - y[i] * z;
            REAL share = (z > 0 ? 1 : small) / (1 + small) - y[i];
            if (sum)
#pragma omp simd
                for (long j = 0; j < columns; j++) sum[j] += share * row[j];
        }
    }
    return value / rows;
}
