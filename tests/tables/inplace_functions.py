"""Functions and methods of NumPy that write: ufunc.at, copyto, put and its kin, .flat, sort, out=."""

from typing import Any

import numpy as np

from tests.tables.inplace import A, I, P, T, V, W, X, Y, of


@of(V, W, I)
def add_at(x: Any, w: Any, i: Any) -> Any:
    np.add.at(x, i, w * x)


@of(X, I)
def subtract_at_pairs(x: Any, i: Any) -> Any:
    np.subtract.at(x, (i[:3] % 3, i[3:] % 4), 2.5)


@of(X, V)
def add_at_rows(x: Any, v: Any) -> Any:
    np.add.at(x, [0, 0, 2], v[:4])


@of(V, W, I)
def multiply_at(x: Any, w: Any, i: Any) -> Any:
    np.multiply.at(x, i, w)


@of(V, P, I)
def divide_at(x: Any, p: Any, i: Any) -> Any:
    np.divide.at(x, i, p)


@of(V, W, I)
def maximum_at(x: Any, w: Any, i: Any) -> Any:
    np.maximum.at(x, i, w)


@of(V, W, I)
def minimum_at(x: Any, w: Any, i: Any) -> Any:
    np.minimum.at(x, i, w)


@of(V, I)
def negative_at(x: Any, i: Any) -> Any:
    np.negative.at(x, i)
    np.square.at(x, [0, 2])


@of(V)
def add_at_a_slice(x: Any) -> Any:
    np.add.at(x, slice(1, 4), x[0])
    np.add.at(x, 2, 1)


@of(np.zeros(4, int), I, order=0)
def a_histogram(counts: Any, i: Any) -> Any:
    np.add.at(counts, i % 4, 1)


@of(X, Y)
def copied_over(x: Any, y: Any) -> Any:
    np.copyto(x, y[0])
    np.copyto(x[1], 3)


@of(X, Y)
def copied_where(x: Any, y: Any) -> Any:
    np.copyto(x, y * 2, where=y > 0)


@of(A)
def diagonal_filled(a: Any) -> Any:
    np.fill_diagonal(a, a[0])
    np.fill_diagonal(a[1:, 1:], 2)


@of(np.ones((5, 2)))
def diagonal_filled_with_wrap(a: Any) -> Any:
    np.fill_diagonal(a, 7, wrap=True)


@of(np.ones((3, 3, 3)), V)
def diagonal_of_a_cube(a: Any, v: Any) -> Any:
    np.fill_diagonal(a, v[:3])


@of(X, W)
def put(x: Any, w: Any) -> Any:
    np.put(x, [0, 5, -1], w[:3])
    x.put([1, 2, 3], w[0])


@of(X, W)
def put_repeats_its_values(x: Any, w: Any) -> Any:
    np.put(x, [0, 2, 4, 6, 8], w[:2])
    np.put(x, [20, -30], w[3:5], mode="clip")
    np.put(x, [13], w[5], mode="wrap")


@of(X, W, I)
def put_at_traced(x: Any, w: Any, i: Any) -> Any:
    np.put(x, i, w)


@of(X, W)
def placed(x: Any, w: Any) -> Any:
    np.place(x, x > 0, w[:3])


@of(X, Y)
def put_by_a_mask(x: Any, y: Any) -> Any:
    np.putmask(x, y > 0, y * 2)
    np.putmask(x, x < -1, -1)


@of(X, W)
def put_by_a_mask_repeats_its_values(x: Any, w: Any) -> Any:
    np.putmask(x, x > 0, w[:5])


@of(X)
def put_along_an_axis(x: Any) -> Any:
    i = np.argmax(x, axis=1)[:, None]
    np.put_along_axis(x, i, 0.0, axis=1)
    np.put_along_axis(x, np.argmin(x, axis=0)[None], x[:1] * 2, axis=0)


@of(X)
def put_along_no_axis(x: Any) -> Any:
    np.put_along_axis(x, np.array([1, 5]), np.array([3.0, 4.0]), axis=None)


@of(X)
def flat_element(x: Any) -> Any:
    x.flat[5] = x.flat[2] * 2
    x.flat[-1] += 1


@of(X, V)
def flat_slice(x: Any, v: Any) -> Any:
    x.flat[1:9:2] = v[:4]
    return x.flat[::5]


@of(X)
def flat_of_all(x: Any) -> Any:
    x.flat = x[0]
    x.flat[[0, 3]] = 9
    return sum(e * e for e in x.flat)


@of(X.T)
def flat_of_a_transpose(x: Any) -> Any:
    x.flat[1] = 5
    x.T.flat[2:4] = x[0, 0]
    return x.flat[4]


@of(X)
def filled(x: Any) -> Any:
    x[1].fill(x[0, 0])
    x[:, 3].fill(2)


@of(V)
def sorted_in_place(x: Any) -> Any:
    x.sort()


@of(X)
def sorted_along_an_axis(x: Any) -> Any:
    x.sort(axis=0)
    x[:, 1:].sort()


@of(X)
def sorted_rows_of_a_loop(x: Any) -> Any:
    for row in x:
        row.sort()


@of(V)
def sorted_then_partial(x: Any) -> Any:
    y = x**2
    y.sort()
    y[:2] = 0
    return y


@of(V)
def partitioned_in_place(x: Any) -> Any:
    x.partition(2)
    return x[2]


@of(V)
def bytes_by_item(x: Any) -> Any:
    x[3] = x[0].item() if False else x[1]
    return x.tolist() if False else x


# out=


@of(V, W)
def ufunc_out(x: Any, w: Any) -> Any:
    np.add(x, w, out=x)
    np.multiply(x, 2, x)
    np.exp(w, out=w)


@of(V, W)
def ufunc_out_of_a_slice(x: Any, w: Any) -> Any:
    np.sin(w[:3], out=x[::2])
    np.subtract(x[1:], x[:-1], out=x[1:])


@of(V, W)
def ufunc_out_is_returned(x: Any, w: Any) -> Any:
    y = np.maximum(x, w, out=w)
    y[0] = 3
    return y is w


@of(V)
def ufunc_where_out(x: Any) -> Any:
    return np.sqrt(x, out=np.zeros_like(x), where=x > 0)


@of(V, W)
def ufunc_where_out_argument(x: Any, w: Any) -> Any:
    np.divide(x, w, out=x, where=np.abs(w) > 0.5)


@of(X, V)
def ufunc_where_broadcast(x: Any, v: Any) -> Any:
    np.add(x, v[:4], out=x, where=v[:3, None] > 0)


@of(V)
def ufunc_two_outs(x: Any) -> Any:
    a, b = np.empty(6), np.empty(6)
    np.modf(x, a, b)
    np.divmod(x, 0.3, out=(a, b))
    return b * a


@of(X, V)
def ufunc_broadcast_out(x: Any, v: Any) -> Any:
    np.multiply(v[:4], 2.0, out=x)


@of(X, A)
def matmul_out(x: Any, a: Any) -> Any:
    y = np.empty((3, 4))
    np.matmul(x, a, out=y)
    np.dot(a, a, out=a)
    return y


@of(X, V)
def reduction_out(x: Any, v: Any) -> Any:
    np.sum(x, axis=1, out=v[:3])
    np.mean(x, axis=1, out=v[3:])
    x.sum(axis=0, out=x[0])


@of(X, V)
def reductions_out(x: Any, v: Any) -> Any:
    np.prod(x, axis=1, out=v[:3])
    x.max(axis=1, out=v[3:])
    np.min(x, axis=0, out=x[2])
    np.std(x, axis=0, out=x[0])
    x.var(axis=0, out=x[1])


@of(V, W)
def scans_out(x: Any, w: Any) -> Any:
    np.cumsum(x, out=x)
    w.cumprod(out=w)


@of(X)
def ufunc_reduce_out(x: Any) -> Any:
    np.add.reduce(x, axis=0, out=x[0])
    np.maximum.reduce(x, axis=1, out=x[:, 0])
    np.add.accumulate(x, axis=1, out=x)


@of(X, np.zeros(3, int), order=1)
def positions_out(x: Any, n: Any) -> Any:
    np.argmax(x, axis=1, out=n)
    n += 1
    x[np.arange(3), n % 4] = 0


@of(X, np.zeros(3, bool), order=1)
def truths_out(x: Any, b: Any) -> Any:
    np.any(x > 1, axis=1, out=b)
    x[b] = 0
    (x > -2).all(axis=1, out=b)


@of(X)
def clipped_out(x: Any) -> Any:
    np.clip(x, -0.5, 0.5, out=x)
    x[0].clip(0, 1, out=x[1])


@of(X, I)
def taken_out(x: Any, i: Any) -> Any:
    y = np.empty((3, 2))
    np.take(x, [1, 3], axis=1, out=y)
    np.take(x[0], i[:4] % 4, out=x[1], mode="wrap")
    return y


@of(X)
def rounded_out(x: Any) -> Any:
    np.round(x * 3, 1, out=x)


@of(X, V)
def concatenated_out(x: Any, v: Any) -> Any:
    np.concatenate([x[0, :3], x[1, :3]], out=v)
    y = np.empty((2, 4))
    np.stack([x[0], x[2]], out=y)
    return y


@of(A)
def einsum_out(a: Any) -> Any:
    y = np.empty(4)
    np.einsum("ij,ij->i", a, a, out=y)
    np.trace(a, out=y[0, ...])
    return y


@of(X)
def median_out(x: Any) -> Any:
    y = np.empty(4)
    np.median(x, axis=0, out=y)
    return y


@of(X, np.zeros(3, np.float32), order=0)
def out_of_another_dtype(x: Any, y: Any) -> Any:
    np.sum(x, axis=1, out=y)
    np.multiply(y, x[:, 0], out=y)
    np.add(x[0, :3], 1, out=y, casting="unsafe")


@of(X)
def nan_functions_out(x: Any) -> Any:
    y = np.empty(3)
    np.nansum(x, axis=1, out=y)
    return np.nan_to_num(x, copy=False), y


@of(V)
def nan_to_num_in_place(x: Any) -> Any:
    x[0] = np.nan
    np.nan_to_num(x, copy=False, nan=5.0)
    return x


@of(V)
def shuffled_by_take(x: Any) -> Any:
    x[:] = np.take(x, [3, 1, 0, 2, 5, 4])
    x[:] = np.roll(x, 2)
    x[:] = x[::-1].cumsum()


# arrays that the function makes


@of(V)
def into_zeros(x: Any) -> Any:
    a = np.zeros(8)
    a[1:7] = x
    a[0] = a[6]
    return a


@of(X)
def into_empty(x: Any) -> Any:
    a = np.empty((4, 4))
    a[:3], a[3] = x, x[0] * x[1]
    return a


@of(V)
def into_ones_and_full(x: Any) -> Any:
    a, b = np.ones(3), np.full((2, 3), x[0])
    a[1] = x[1]
    b[0] = a
    b *= x[:3]
    return a, b


@of(V)
def into_array(x: Any) -> Any:
    a = np.array([1.0, 2.0, 3.0])
    b = np.array([x[0], 2, x[1]])
    a[1] = x[0]
    b[1] = a[1] * 2
    return a, b


@of(V)
def into_an_array_of_ints(x: Any) -> Any:
    a = np.array([1, 2, 3])
    a[1] = x[0] * 10
    return a * x[1]


@of(V)
def into_an_ndarray(x: Any) -> Any:
    a = np.ndarray((2, 3))
    a[0], a[1] = x[:3], x[3:]
    b = np.ndarray(shape=3, dtype=np.float64)
    b[:] = x[:3]
    return a, b


@of(X)
def into_likes(x: Any) -> Any:
    a, b = np.zeros_like(x), np.ones_like(x[0])
    c, d = np.full_like(x, 2), np.empty_like(x)
    a[1], b[2], c[:, 0] = x[0], x[1, 1], x[:, 2]
    d[...] = x
    d[0] *= 2
    return a, b, c, d


@of(V)
def into_arange(x: Any) -> Any:
    a = np.arange(6.0)
    a[2] = x[0]
    a *= x
    b = np.arange(6)
    b[1] = x[0] * 10
    return a, b


@of(V)
def into_linspace(x: Any) -> Any:
    t = np.linspace(0, 1, 6)
    t[1:-1] += x[:4] * 0.01
    return t


@of(V)
def into_eye(x: Any) -> Any:
    e = np.eye(3)
    e[0] = x[:3]
    i = np.identity(3)
    i[1, 1] = x[5]
    return e @ i


@of(V)
def into_tiled(x: Any) -> Any:
    a = np.tile(x, 2)
    b = np.repeat(x, 2)
    c = np.concatenate([x, x])
    a[0], b[1], c[2] = 1, 2, 3
    return a, b, c


@of(V)
def into_copies_of_static(x: Any) -> Any:
    base = np.linspace(0, 1, 6)
    a = base.copy()
    a[0] = x[1]
    b = np.copy(base)
    b += x
    return a, b, base


@of(V)
def into_results(x: Any) -> Any:
    y = np.where(x > 0, x, 0)
    y[0] = 5
    z = x[[0, 1, 2]]
    z[0] = 9
    return y, z


@of(V)
def into_an_accumulator_made_of_a_number(x: Any) -> Any:
    total = np.zeros(())
    count = np.array(0.0)
    for v in x:
        total += v
        count += 1
    return total / count


@of(P)
def into_a_padded(x: Any) -> Any:
    p = np.pad(x, 1)
    p[0], p[-1] = p[1], p[-2]
    return p[:-2] - 2 * p[1:-1] + p[2:]


@of(T)
def nested_out(t: Any) -> Any:
    out = np.empty(t.shape[:-1])
    for k in range(t.shape[0]):
        np.sum(t[k], axis=-1, out=out[k])
        np.multiply(out[k], 2, out=out[k])
    return out


@of(X, V)
def out_of_more_axes_under_a_mask(x: Any, v: Any) -> Any:
    np.multiply(v[:4], 2.0, out=x, where=v[:4] > 0)
