"""Elements that a mask chooses: their number depends on values, and that of the results does not."""

from typing import Any

import numpy as np

from tests.tables.inplace import T, V, W, X, Y, of


@of(V)
def sums(x: Any) -> Any:
    return x[x > 0].sum(), np.sum(x[x < 0]), x[x > 0].sum() / len(x[x > 0])


@of(X)
def sums_of_a_matrix(x: Any) -> Any:
    return x[x > 0].sum(), (x[x > 0] ** 2).sum()


@of(V)
def moments(x: Any) -> Any:
    c = x[x > -1]
    return c.mean(), c.std(), c.var(ddof=1), np.std(c), np.mean(c)


@of(V)
def extremes(x: Any) -> Any:
    c = x[np.abs(x) > 0.1]
    return c.max(), c.min(), np.max(c), np.min(c), np.ptp(c), c.prod()


@of(V, order=0)
def counts(x: Any) -> Any:
    c = x[x > 0]
    return c.size, len(c), c.shape[0], np.count_nonzero(x > 0), (x > 0).sum(), np.size(c), len(np.nonzero(x > 0)[0])


@of(V, order=0)
def truths(x: Any) -> Any:
    c = x[x > 0]
    return (c > 0).all(), (c > 1).any(), np.all(c < 2), np.any(c > 3), np.isnan(c).any()


@of(V, order=1)
def order_statistics(x: Any) -> Any:
    c = x[x > -1]
    return np.median(c), np.percentile(c, 30), np.quantile(c, 0.75), np.sort(c)[0], np.sort(c)[-1]


@of(V, order=0)
def positions(x: Any) -> Any:
    c = x[x > -1]
    return np.argmax(c), c.argmin(), np.where(x < 0)[0][0], np.flatnonzero(x > 0)[-1], np.nonzero(x > 0)[0].max()


@of(V, W)
def computed_with(x: Any, w: Any) -> Any:
    m = w > 0
    r = (x[m] - 2 * w[m]) / (1 + w[m] ** 2)
    return np.sum(np.exp(-r) * 3), np.dot(x[m], w[m]), x[m] @ w[m], np.sqrt(np.abs(r)).mean()


@of(V, W)
def two_masks_of_one_meaning(x: Any, w: Any) -> Any:
    return np.sum(x[w > 0] * w[w > 0]), ((x[w <= 0] - w[w <= 0]) ** 2).mean()


@of(V, W)
def two_masks_of_equal_counts(x: Any, w: Any) -> Any:
    a, b = x[x > np.sort(x)[2]], w[w > np.sort(w)[2]]
    return np.sum(a * b), np.sum(np.cumsum(a) * b)


@of(X, V)
def rows(x: Any, v: Any) -> Any:
    m = v[:3] > -1
    return x[m].sum(axis=0), x[m].mean(0), x[m].sum(), x[m].sum(axis=1).max(), x[m].max(axis=0)


@of(X, V, order=1)
def products_of_rows(x: Any, v: Any) -> Any:
    m = v[:3] > -1
    c = x[m]
    return c.T @ c, (c @ v[:4]).sum(), v[:3][m] @ c, (c - c.mean(axis=0)).std(axis=0)


@of(X, V)
def columns(x: Any, v: Any) -> Any:
    m = v[:4] > -1
    return x[:, m].sum(axis=1), x[1, m].mean(), x[::2, m].max(axis=1)


@of(T, X)
def masks_of_two_axes(t: Any, x: Any) -> Any:
    return t[:, x > 0].sum(axis=1), t[0][x > 0].mean(), (t[:, x > 0] ** 2).sum()


@of(X, V)
def weighted_rows(x: Any, v: Any) -> Any:
    m = v[:3] > -1
    return (x[m] * v[:3][m][:, None]).sum(axis=0), np.average(v[:3][m], weights=v[3:][m] ** 2)


@of(V, W)
def likelihood_of_the_observed(x: Any, w: Any) -> Any:
    observed = ~np.isnan(w)
    r = w[observed] - x[observed]
    return -0.5 * np.sum(r**2) - len(r) * np.log(2.0), np.linalg.norm(r), np.nanmean(r)


@of(V)
def compressed(x: Any) -> Any:
    return np.compress(x > 0, x).sum(), np.extract(x < 0, x * 2).mean(), x.compress(x > 0).max()


@of(V)
def roots_of_the_positive(x: Any) -> Any:
    return np.sum(np.log(x[x > 0])), np.sqrt(x[x > 0]).mean(), (1 / x[x != 0]).sum()


@of(V)
def parts(x: Any) -> Any:
    c = x[x > -1]
    return c[0], c[-1], c[1:].sum(), c[:-1].mean(), np.sum((c[1:] - c[:-1]) ** 2), c[:2].sum()


@of(V)
def chosen_twice(x: Any) -> Any:
    c = x[x > -1]
    d = c[c < 1]
    return d.sum(), np.clip(c, -0.2, 0.3).sum(), np.where(c > 0, c, 0).sum()


@of(V, W)
def written_from(x: Any, w: Any) -> Any:
    m = w > 0
    c = x[m]
    c *= 2
    c += w[m]
    x[m] = np.sin(c)
    w[~m] = 0


@of(V, W)
def written_in_order(x: Any, w: Any) -> Any:
    m = w > np.sort(w)[2]
    x[m] = w[:3] * 2
    x[np.sort(w)[2] >= w] = w[m]


@of(X, Y)
def written_rows(x: Any, y: Any) -> Any:
    m = y[:, 0] > 0
    x[m] = y[m] * 2
    x[~m, 1:3] = y[~m, :2]


@of(X, V)
def written_part_by_part(x: Any, v: Any) -> Any:
    x[v[:3] > -1, 0] *= 5
    x[1:, v[:4] > 0] += v[3:5, None]
    x[0, v[:4] < 0] = v[0]


@of(X)
def written_where(x: Any) -> Any:
    i, j = np.where(x > 0)
    x[i, j] = x[i, j] ** 2
    x[np.where(x < -1)] = -1


@of(X)
def written_argwhere(x: Any) -> Any:
    x[x < 0] = x[x > 0].mean()
    return np.argwhere(x > 0).sum()


@of(np.array([1.3, np.nan, 2.0, np.nan]), order=1)
def filled_by_the_mean(x: Any) -> Any:
    x[np.isnan(x)] = np.nanmean(x)
    return x[x > 1].mean()


@of(V, order=0)
def none_chosen(x: Any) -> Any:
    c = x[x > 100]
    return c.sum(), c.prod(), c.any(), c.all(), len(c), c.mean(), np.median(c)
