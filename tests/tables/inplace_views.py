"""Writes through views, and what other views of the same array then show."""

from typing import Any

import numpy as np

from tests.tables.inplace import A, T, V, W, X, Y, of


@of(X)
def a_row_view(x: Any) -> Any:
    row = x[1]
    row[2] = 7
    row *= x[0]
    return row.sum()


@of(X)
def a_view_of_a_view(x: Any) -> Any:
    x[1:][0][::2] = x[0, :2] ** 2


@of(V)
def views_three_deep(x: Any) -> Any:
    a = x[1:]
    b = a[::2]
    c = b[::-1]
    c[0] = x[0] * 3
    b[1] += a[0]
    return a, b, c


@of(V)
def a_write_seen_through_an_earlier_view(x: Any) -> Any:
    v = x[2:4]
    x *= 2
    return v * v


@of(X)
def a_write_seen_through_a_transpose(x: Any) -> Any:
    t = x.T
    x[0, 1] = 9
    return t[1] * x[0, 0]


@of(V)
def a_write_through_a_view_seen_by_another(x: Any) -> Any:
    a, b = x[:4], x[2:]
    a[2:] = W[:2]
    b[0] *= 2
    return a, b


@of(X)
def transposed(x: Any) -> Any:
    t = x.T
    t[0] = x[:, 1] * 2
    t[1:3] *= x[0, 0]


@of(T)
def axes_moved(x: Any) -> Any:
    np.moveaxis(x, 0, -1)[1, 2] = 3
    np.swapaxes(x, 0, 2)[0] *= 2
    x.transpose(1, 2, 0)[..., 0] += x[1]


@of(V)
def reshaped(x: Any) -> Any:
    g = x.reshape(2, 3)
    g[0] = g[1] ** 2
    return g


@of(X)
def reshaped_in_two_axes(x: Any) -> Any:
    g = x.reshape(2, 6)
    g[1, ::2] = x[0, :3]
    x.reshape(-1)[3] *= 5


@of(X)
def reshaped_to_a_line(x: Any) -> Any:
    line = x.reshape(-1)
    line[::5] = 0
    line += x[0, 1]


@of(X)
def ravelled(x: Any) -> Any:
    r = x.ravel()
    r[5] = x[0, 0] * x[2, 2]
    r[::2] *= 2


@of(X)
def ravelled_by_the_function(x: Any) -> Any:
    np.ravel(x)[1:4] = x[2, :3]


@of(np.asfortranarray(X))
def ravelled_in_column_order(x: Any) -> Any:
    r = x.ravel()
    r[5] = x[0, 0] * x[2, 2]
    return r


@of(np.asfortranarray(X))
def column_order_reshaped_in_column_order(x: Any) -> Any:
    line = x.reshape(-1, order="F")
    line[3] = x[0, 0] ** 2


@of(X.T)
def a_transposed_argument_ravelled(x: Any) -> Any:
    r = np.ravel(x)
    r[:] = 0
    return x * 2


@of(X)
def flattened_is_a_copy(x: Any) -> Any:
    f = x.flatten()
    f[0] = 100
    return f


@of(T)
def ravelled_part(x: Any) -> Any:
    r = x[0].ravel()
    r[2] = 4
    s = x[:, 1].ravel()
    s[0] = 8
    return s


@of(T[0])
def reshaped_result_of_an_expression(x: Any) -> Any:
    y = x * 2
    y.reshape(-1)[0] = x[1, 1] ** 2
    y.reshape(4, 3)[:, 1] = 1
    return y


@of(V)
def with_new_axes(x: Any) -> Any:
    x[:, None][2, 0] = x[0] ** 2
    np.expand_dims(x, 0)[0, 1] *= 3


@of(V[None, :, None])
def squeezed(x: Any) -> Any:
    np.squeeze(x)[1] = 2
    x.squeeze()[2:] *= x.squeeze()[0]


@of(X)
def flipped(x: Any) -> Any:
    np.flip(x, 0)[0] = x[0] * 2
    np.fliplr(x)[:, 0] += 1
    np.rot90(x)[0] *= 3


@of(A)
def through_the_diagonal(x: Any) -> Any:
    x.reshape(-1)[:: 4 + 1] = x[0] * 2


@of(A)
def strided_diagonal(x: Any) -> Any:
    x.flat[::5] += 10


@of(A)
def diagonal_is_read_only_but_reads_new(x: Any) -> Any:
    d = x.diagonal()
    x[0, 0] = 5
    return d * 2


@of(X)
def split_views(x: Any) -> Any:
    left, right = np.split(x, 2, axis=1)
    left *= right
    right[0] = 0


@of(X)
def rows_of_a_loop(x: Any) -> Any:
    for i, row in enumerate(x):
        row *= i + x[0, 0]


@of(X)
def unpacked_rows(x: Any) -> Any:
    a, b, c = x
    a += b * c
    c[...] = 1
    return a


@of(X)
def zipped_rows(x: Any) -> Any:
    for row, factor in zip(x, (2.0, 3.0, 4.0), strict=True):
        row -= factor * row.mean()


@of(V)
def two_names(x: Any) -> Any:
    y = x
    y += 1
    y[0] = 5
    return x * y


@of(V)
def a_new_name(x: Any) -> Any:
    y = x
    y = y + 1
    y[0] = 5
    return x * y


@of(V)
def a_copy(x: Any) -> Any:
    y = x.copy()
    z = np.copy(x)
    y[0] = 5
    z *= y
    return x + y * z


@of(V)
def asarray_is_no_copy(x: Any) -> Any:
    y = np.asarray(x)
    y[0] = x[1] ** 2
    z = np.array(x)
    z[1] = 0
    return z


@of(V, order=0)
def asarray_of_another_dtype(x: Any) -> Any:
    y = np.asarray(x, dtype=np.float32)
    y[0] = 3
    return y + x


@of(V)
def astype_without_copy(x: Any) -> Any:
    y = x.astype(np.float64, copy=False)
    y[0] = 3
    z = x.astype(np.float64)
    z[1] = 4
    return z


@of(X, Y)
def views_of_two_arrays(x: Any, y: Any) -> Any:
    pair = [x[0], y[0]]
    for p in pair:
        p *= 2
    pair[0][1] = pair[1][2]


@of(X)
def a_view_returned(x: Any) -> Any:
    v = x[1:, 1]
    v += 1
    return v


@of(V)
def a_function_that_writes(x: Any) -> Any:
    def relu(y: Any) -> None:
        y[y < 0] = 0

    relu(x)
    relu(-x[1:])
    relu(x[2:4])


@of(V)
def a_write_after_a_read(x: Any) -> Any:
    s = x.sum()
    first = x[0]
    x[0] = 10
    return s, first


@of(X)
def elements_are_no_views(x: Any) -> Any:
    e = x[0, 0]
    e += 5
    return e


@of(np.array(2.5))
def rank_zero(x: Any) -> Any:
    x[...] = x * x
    x += 1
    x[()] *= 2


@of(V)
def an_element_as_a_view(x: Any) -> Any:
    e = x[2, ...]
    e *= x[0]
    e[...] += 1
    return e + 0


@of(X)
def sliding_windows_see_writes(x: Any) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, 2, axis=1)
    x[0] = x[1] ** 2
    return w.sum(axis=-1)


@of(X)
def broadcast_sees_writes(x: Any) -> Any:
    b = np.broadcast_to(x[0], (3, 4))
    x[0] = x[1] * 2
    return b * x


@of(V)
def broadcast_arrays_see_writes(x: Any) -> Any:
    a, b = np.broadcast_arrays(x, x[:, None])
    x[0] = 3
    return a * b


@of(X)
def real_part(x: Any) -> Any:
    x.real[0] = x[1] ** 2
    return x.T.T


@of(X)
def atleast_2d_of_a_row(x: Any) -> Any:
    np.atleast_2d(x[0])[0, 1] = 5
    np.atleast_1d(x)[2] *= 2


@of(X)
def matrix_transposed(x: Any) -> Any:
    x.mT[1] = x[:, 0] * 3
    np.matrix_transpose(x)[0, 0] = 2


@of(V, W)
def in_place_by_every_operator(x: Any, w: Any) -> Any:
    x += w
    x -= 2 * w
    x *= w + 3
    x /= w * w + 1
    x **= 2
    x //= 0.3
    x %= 1.7


@of(X, A)
def in_place_matmul(x: Any, a: Any) -> Any:
    x @= a


@of(V)
def itself_in_place(x: Any) -> Any:
    x += x
    x *= x[::-1]
    x -= x.mean()


@of(X, np.asfortranarray(Y))
def made_contiguous(x: Any, y: Any) -> Any:
    np.ascontiguousarray(x)[0] = x[1] ** 2
    c = np.ascontiguousarray(y)
    c[0] = 5
    np.asfortranarray(y)[1] = 2
    np.require(x, requirements="C")[2] *= 3
    return c, np.ascontiguousarray(x.T)
