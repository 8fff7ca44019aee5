"""Scans over samples: runs, peaks, crossings, windows, thresholds with hysteresis, change points, sorting."""

import numpy as np

from tests.corpus.case import Case


def run_length(codes):
    """Values and lengths of runs."""
    values, lengths = [codes[0]], [1]
    for prev, cur in zip(codes[:-1], codes[1:]):
        if cur == prev:
            lengths[-1] += 1
        else:
            values.append(cur)
            lengths.append(1)
    return np.array(values), np.array(lengths)


def longest_run(x, threshold):
    """Length and start of the longest run above a threshold."""
    best = best_start = 0
    length = 0
    for i in range(len(x)):
        if x[i] > threshold:
            length += 1
            if length > best:
                best = length
                best_start = i - length + 1
        else:
            length = 0
    return best, best_start


def find_peaks(x, min_height, min_distance):
    """Local maxima that are high and far enough from the previous one."""
    peaks = []
    for i in range(1, len(x) - 1):
        if x[i] > x[i - 1] and x[i] >= x[i + 1] and x[i] >= min_height:
            if peaks and i - peaks[-1] < min_distance:
                if x[i] > x[peaks[-1]]:
                    peaks[-1] = i
                continue
            peaks.append(i)
    return np.array(peaks, dtype=int)


def zero_crossings(t, y):
    """Interpolated times of upward crossings, padded with -1."""
    out = np.full(len(t), -1.0)
    count = 0
    for k in range(len(y) - 1):
        if y[k] < 0 <= y[k + 1]:
            out[count] = t[k] - y[k] * (t[k + 1] - t[k]) / (y[k + 1] - y[k])
            count += 1
    return out, count


def moving_median(x, half):
    """Median in windows that shrink at the ends."""
    y = np.zeros(len(x))
    for i in range(len(x)):
        lo = max(0, i - half)
        hi = min(len(x), i + half + 1)
        y[i] = np.median(x[lo:hi])
    return y


def moving_sum(x, width):
    """Sums in windows, updated by the entering and the leaving sample."""
    total = np.sum(x[:width])
    sums = [total]
    for i in range(width, len(x)):
        total += x[i] - x[i - width]
        sums.append(total)
    return np.array(sums)


def schmitt_trigger(x, low, high):
    """A state that rises above high and falls below low, and the number of switches."""
    state = False
    states = np.zeros(len(x), dtype=bool)
    switches = 0
    for i, v in enumerate(x):
        if not state and v > high:
            state = True
            switches += 1
        elif state and v < low:
            state = False
            switches += 1
        states[i] = state
    return states, switches


def cusum(x, drift, threshold):
    """Two-sided CUSUM; alarms reset the sums."""
    g_pos = g_neg = 0.0
    alarms = []
    for t in range(1, len(x)):
        s = x[t] - x[t - 1]
        g_pos = max(g_pos + s - drift, 0)
        g_neg = max(g_neg - s - drift, 0)
        if g_pos > threshold or g_neg > threshold:
            alarms.append(t)
            g_pos, g_neg = 0.0, 0.0
    return np.array(alarms, dtype=int), g_pos + g_neg


def despike(x, limit):
    """Replace jumps by the last good sample, in place; returns the number of spikes."""
    spikes = 0
    last = x[0]
    for i in range(1, x.size):
        if abs(x[i] - last) > limit:
            x[i] = last
            spikes += 1
        else:
            last = x[i]
    return spikes


def fill_gaps(x):
    """Linear interpolation over gaps, which are coded as NaN."""
    y = x.copy()
    n = len(y)
    i = 0
    while i < n:
        if not np.isnan(y[i]):
            i += 1
            continue
        j = i
        while j < n and np.isnan(y[j]):
            j += 1
        for k in range(i, j):
            if i == 0:
                y[k] = y[j]
            elif j == n:
                y[k] = y[i - 1]
            else:
                y[k] = y[i - 1] + (y[j] - y[i - 1]) * (k - i + 1) / (j - i + 1)
        i = j
    return y


def goertzel(samples, frequency, rate):
    """Power at one frequency."""
    w = 2 * np.pi * frequency / rate
    coeff = 2 * np.cos(w)
    s_prev = s_prev2 = 0.0
    for sample in samples:
        s = sample + coeff * s_prev - s_prev2
        s_prev2 = s_prev
        s_prev = s
    return s_prev2**2 + s_prev**2 - coeff * s_prev * s_prev2


def autocorrelation(x, max_lag):
    """Autocorrelation until it first falls below zero."""
    x = x - x.mean()
    c0 = np.dot(x, x)
    acf = [1.0]
    for lag in range(1, max_lag + 1):
        c = np.dot(x[:-lag], x[lag:]) / c0
        if c < 0:
            break
        acf.append(c)
    return sum(acf), len(acf)


def insertion_sort(x):
    """Sort in place; returns the number of moves."""
    moves = 0
    for i in range(1, len(x)):
        key = x[i]
        j = i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
            moves += 1
        x[j + 1] = key
    return moves


def bubble_sort(values):
    """Sort a copy by swaps, until a sweep changes nothing."""
    a = np.copy(values)
    swapped = True
    end = len(a) - 1
    while swapped:
        swapped = False
        for i in range(end):
            if a[i] > a[i + 1]:
                a[i], a[i + 1] = a[i + 1], a[i]
                swapped = True
        end -= 1
    return a


def quickselect(values, k):
    """The k-th smallest by Hoare's partition."""
    a = values.copy()
    lo, hi = 0, len(a) - 1
    while lo < hi:
        pivot = a[(lo + hi) // 2]
        i, j = lo, hi
        while i <= j:
            while a[i] < pivot:
                i += 1
            while a[j] > pivot:
                j -= 1
            if i <= j:
                a[i], a[j] = a[j], a[i]
                i, j = i + 1, j - 1
        if k <= j:
            hi = j
        elif k >= i:
            lo = i
        else:
            break
    return a[k]


def merge(a, b):
    """Two sorted arrays into one."""
    out = np.empty(len(a) + len(b))
    i = j = 0
    for k in range(len(out)):
        if j >= len(b) or (i < len(a) and a[i] <= b[j]):
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1
    return out


def binary_search(table, keys):
    """Positions of keys in a sorted table, -1 if absent."""
    positions = []
    for key in keys:
        lo, hi = 0, len(table) - 1
        position = -1
        while lo <= hi:
            mid = (lo + hi) // 2
            if table[mid] == key:
                position = mid
                break
            if table[mid] < key:
                lo = mid + 1
            else:
                hi = mid - 1
        positions.append(position)
    return positions


def events_above(x, threshold, gap):
    """Groups of exceedances separated by at least gap samples; the sum of their maxima."""
    total = 0.0
    n_events = 0
    current = None
    since = 0
    for v in x:
        if v > threshold:
            current = v if current is None else max(current, v)
            since = 0
        elif current is not None:
            since += 1
            if since >= gap:
                total += current
                n_events += 1
                current = None
    if current is not None:
        total += current
        n_events += 1
    return total, n_events


def gappy(rng, n):
    x = rng.normal(size=n)
    x[rng.integers(0, n - 3):][:2] = np.nan
    return x


def spiky(rng, n):
    x = rng.uniform(-0.5, 0.5, n)
    x[rng.integers(1, n, 2)] += 5
    return x


CASES = [
    Case(function=run_length, arguments=lambda rng, n: (rng.integers(0, 2, n),)),
    Case(function=longest_run, arguments=lambda rng, n: (rng.normal(size=n), -0.3)),
    Case(function=find_peaks, arguments=lambda rng, n: (rng.normal(size=n), 0.0, 3), size=16),
    Case(function=zero_crossings, argnums=(0, 1), arguments=lambda rng, n: (np.sort(rng.uniform(0, 9, n)), rng.normal(size=n))),
    Case(function=moving_median, argnums=(0,), size=7, arguments=lambda rng, n: (rng.normal(size=n), 2)),
    Case(function=moving_sum, argnums=(0,), arguments=lambda rng, n: (rng.normal(size=n), 4)),
    Case(function=schmitt_trigger, arguments=lambda rng, n: (rng.normal(size=n), -0.5, 0.5)),
    Case(function=cusum, argnums=(0, 1), arguments=lambda rng, n: (np.cumsum(rng.normal(size=n)), 0.3, 1.5)),
    Case(function=despike, writes=True, arguments=lambda rng, n: (spiky(rng, n), 2.0)),
    Case(function=fill_gaps, arguments=lambda rng, n: (gappy(rng, n),)),
    Case(function=goertzel, argnums=(0, 1), arguments=lambda rng, n: (rng.normal(size=n), 2.1, 10.0)),
    Case(function=autocorrelation, argnums=(0,), size=8, turns=300,
         arguments=lambda rng, n: (np.cumsum(rng.normal(size=n + 4)), n)),
    Case(function=insertion_sort, writes=True, size=7, turns=80, arguments=lambda rng, n: (rng.normal(size=n),)),
    Case(function=bubble_sort, argnums=(0,), size=6, turns=60, arguments=lambda rng, n: (rng.normal(size=n),)),
    Case(function=quickselect, argnums=(0,), size=7, turns=500, arguments=lambda rng, n: (rng.normal(size=n), n // 3)),
    Case(function=merge, argnums=(0, 1), size=7,
         arguments=lambda rng, n: (np.sort(rng.normal(size=n)), np.sort(rng.normal(size=n // 2)))),
    Case(function=binary_search, size=8, turns=300,
         arguments=lambda rng, n: (np.sort(rng.permutation(3 * n)[:n]), rng.integers(0, 3 * n, max(n // 2, 3)))),
    Case(function=events_above, argnums=(0,), size=16, arguments=lambda rng, n: (rng.normal(size=n), 0.4, 2)),
]  # fmt: skip
