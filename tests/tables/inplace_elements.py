"""Writes by index: elements, slices, masks, integer arrays."""

from typing import Any

import numpy as np

from tests.tables.inplace import A, I, N, T, V, W, X, Y, of


@of(V)
def one_element(x: Any) -> Any:
    x[2] = x[0] * x[1]


@of(V)
def negative_element(x: Any) -> Any:
    x[-1] = x[-2] ** 2
    return x


@of(X)
def element_of_a_matrix(x: Any) -> Any:
    x[1, 2] += x[0, 0] * x[2, 3]


@of(X)
def chained_element(x: Any) -> Any:
    x[1][2] = x[0][0] * 3


@of(X, V)
def a_row(x: Any, v: Any) -> Any:
    x[1] = v[:4] * x[0]


@of(X, V)
def a_column(x: Any, v: Any) -> Any:
    x[:, 1] = v[:3]
    x[:, -1] *= x[:, 1]


@of(X)
def a_scalar_everywhere(x: Any) -> Any:
    y = x * 2
    x[...] = 3.0
    return y


@of(X, Y)
def everything(x: Any, y: Any) -> Any:
    x[:] = y
    x *= y


@of(V)
def every_second(x: Any) -> Any:
    x[::2] = x[1::2] ** 2


@of(V)
def backwards(x: Any) -> Any:
    x[::-1] = x * np.arange(6)


@of(V)
def backwards_in_part(x: Any) -> Any:
    x[4:0:-2] = x[:2] * 3


@of(V)
def reversed_onto_itself(x: Any) -> Any:
    x[:] = x[::-1]


@of(V)
def shifted_onto_itself(x: Any) -> Any:
    x[1:] = x[:-1]


@of(V)
def shifted_sum_onto_itself(x: Any) -> Any:
    x[1:] += x[:-1]


@of(X)
def steps_in_two_axes(x: Any) -> Any:
    x[::2, ::-3] = x[::2, :2] * 2


@of(T)
def ellipsis_first(x: Any) -> Any:
    x[..., 0] = x[..., 1] * x[..., 2]


@of(T)
def ellipsis_between(x: Any) -> Any:
    x[0, ..., -1] -= x[1, ..., 0]


@of(X, V)
def a_new_axis(x: Any, v: Any) -> Any:
    x[:, None, :2] = v.reshape(3, 1, 2)


@of(X, V)
def a_broadcast_row(x: Any, v: Any) -> Any:
    x[1:] = v[:4]


@of(X, V)
def a_broadcast_column(x: Any, v: Any) -> Any:
    x[:, :3] = v[:3, None]


@of(V)
def leading_ones(x: Any) -> Any:
    x[1:4] = (x[:3] ** 2)[None, None]


@of(V)
def a_list_of_numbers(x: Any) -> Any:
    x[1:4] = [1.0, x[0], 3]


@of(X)
def nested_lists(x: Any) -> Any:
    x[:2, :2] = [[x[2, 0], 0], [1, x[2, 1]]]


@of(V)
def an_empty_slice(x: Any) -> Any:
    x[3:3] = x[0]
    x[5:2] = 7
    return x * 2


@of(V)
def tuple_assignment(x: Any) -> Any:
    x[0], x[1] = x[2] * 2, x[0]


@of(V)
def a_swap(x: Any) -> Any:
    x[1], x[4] = x[4], x[1]


@of(V)
def swapped_slices(x: Any) -> Any:
    x[:3], x[3:] = x[3:].copy(), x[:3].copy()


@of(V)
def swapped_slices_without_copies(x: Any) -> Any:
    x[:3], x[3:] = x[3:], x[:3]


@of(X)
def swapped_rows(x: Any) -> Any:
    x[[0, 2]] = x[[2, 0]]


@of(X)
def swapped_rows_that_are_views(x: Any) -> Any:
    x[0], x[1] = x[1], x[0]


@of(X)
def swapped_columns(x: Any) -> Any:
    x[:, [0, 3]] = x[:, [3, 0]]


@of(V)
def a_chain_of_targets(x: Any) -> Any:
    x[0] = x[3] = y = x[1] * x[2]
    return y


@of(V)
def unpacked_into_elements(x: Any) -> Any:
    x[0], *rest, x[5] = x * 2
    return rest[0]


# masks


@of(V)
def negative_to_zero(x: Any) -> Any:
    y = x * 2
    y[y < 0] = 0
    return y


@of(V)
def negative_of_an_argument(x: Any) -> Any:
    x[x < 0] = -1


@of(V)
def masked_product(x: Any) -> Any:
    x[x > 0] *= 3


@of(V, W)
def masked_sum_by_another(x: Any, w: Any) -> Any:
    x[w > 0] += 2


@of(V, W)
def masked_values(x: Any, w: Any) -> Any:
    m = w > 0
    x[m] = w[m] * x[m]


@of(V, W)
def masked_values_by_two_names(x: Any, w: Any) -> Any:
    x[w > 0] = w[w > 0]


@of(V, W)
def masked_inverse(x: Any, w: Any) -> Any:
    m = x > 0
    x[m] = w[m]
    x[~m] = -(w[~m] ** 2)


@of(V)
def masked_root(x: Any) -> Any:
    y = np.zeros_like(x)
    y[x > 0] = np.sqrt(x[x > 0])
    return y


@of(V)
def masked_pieces(x: Any) -> Any:
    y = np.empty_like(x)
    small = np.abs(x) < 0.5
    y[small] = 0.5 * x[small] ** 2
    y[~small] = 0.5 * (np.abs(x[~small]) - 0.25)
    return y


@of(X, V)
def masked_rows(x: Any, v: Any) -> Any:
    x[v[:3] > 0] = v[:4]
    x[v[3:] < 0] *= 2


@of(X)
def masked_rows_of_one_column(x: Any) -> Any:
    x[x[:, 0] > 0, 1] = 5


@of(X)
def masked_columns(x: Any) -> Any:
    x[:, x[0] > 0] = 1.5


@of(X, Y)
def masked_matrix(x: Any, y: Any) -> Any:
    x[(x > 0) & (y < 0.5)] -= 1
    x[np.logical_or(y > 1, x > 1)] = 0


@of(X)
def static_mask(x: Any) -> Any:
    x[np.array([True, False, True])] *= 2
    x[:, [False, True, True, False]] = 1


@of(V)
def static_mask_of_values(x: Any) -> Any:
    m = np.arange(6) % 2 == 0
    x[m] = x[~m] * x[m]


@of(V)
def clipped_by_masks(x: Any) -> Any:
    x[x > 1] = 1
    x[x < -1] = -1
    return x.sum()


@of(V)
def nan_to_number(x: Any) -> Any:
    y = np.sqrt(x)
    y[np.isnan(y)] = 0
    return y


@of(V, W)
def where_as_an_index(x: Any, w: Any) -> Any:
    x[np.where(w > 0)] = 2 * w[np.where(w > 0)]


@of(X)
def nonzero_as_an_index(x: Any) -> Any:
    i, j = np.nonzero(x > 0)
    x[i, j] *= 2


@of(V)
def flatnonzero_as_an_index(x: Any) -> Any:
    x[np.flatnonzero(x < 0)] = 0


# integer arrays


@of(X, V)
def some_rows(x: Any, v: Any) -> Any:
    x[[0, 2]] = v[:4]
    x[[2, 0]] += v[:4] * x[[0, 2]]


@of(V, W)
def repeats_the_last_counts(x: Any, w: Any) -> Any:
    x[[1, 1, 3]] = w[:3]


@of(V, W, I)
def repeats_by_an_argument(x: Any, w: Any, i: Any) -> Any:
    x[i] = w


@of(V, W, I)
def repeats_added_once(x: Any, w: Any, i: Any) -> Any:
    x[i] += w


@of(V, W, I)
def repeats_added_each(x: Any, w: Any, i: Any) -> Any:
    np.add.at(x, i, w)


@of(X, V)
def pairs_of_indices(x: Any, v: Any) -> Any:
    x[[0, 1, 2], [3, 1, 0]] = v[:3]


@of(X, I)
def pairs_of_traced_indices(x: Any, i: Any) -> Any:
    x[i[:3] % 3, i[3:] % 4] *= 2


@of(X)
def crossed_indices(x: Any) -> Any:
    x[np.ix_([0, 2], [1, 3])] = x[:2, :2]


@of(T, I)
def index_and_slice(x: Any, i: Any) -> Any:
    x[:, i[:2] % 3, 1:3] = x[:, :2, :2] * 2


@of(T, I)
def separated_indices(x: Any, i: Any) -> Any:
    x[i[:2] % 2, :, i[2:4] % 4] = 7


@of(X)
def traced_position(x: Any) -> Any:
    x[np.argmax(x, axis=0), np.arange(4)] = 0
    x[np.argmin(x[:, 0])] += 1


@of(V)
def negative_indices_in_arrays(x: Any) -> Any:
    x[[-1, 0, -3]] = x[[1, 2, 3]] * 2


@of(V, 2)
def an_int_argument(x: Any, k: Any) -> Any:
    x[k] = x[k + 1] ** 2
    x[-k] = 1


@of(V, 2)
def a_slice_of_an_int_argument(x: Any, k: Any) -> Any:
    x[k:] *= x[:-k]


@of(A)
def triangle_by_indices(x: Any) -> Any:
    x[np.triu_indices(4, 1)] = 0
    x[np.diag_indices(4)] = x.sum(axis=1)


@of(A)
def symmetrised(x: Any) -> Any:
    i = np.tril_indices(4, -1)
    x[i] = x.T[i]


@of(X, N)
def integers_too(x: Any, n: Any) -> Any:
    n[1] += 2
    n[:, 0] = n[:, 1] * n[:, 2]
    x *= n


@of(N, order=0)
def floats_cut_to_integers(n: Any) -> Any:
    n[0] = 2.7
    n[1] = n[2] / 3


@of(N > 4, order=0)
def booleans(b: Any) -> Any:
    b[0] ^= b[1]
    b[2] |= True
    b[1, 1] = 2.5
    return b.sum()


@of(np.arange(250, 256, dtype=np.uint8), order=0)
def wrapping(n: Any) -> Any:
    n += 10
    n[0] -= 250


@of(X.astype(np.float32), Y, order=0)
def single_precision(x: Any, y: Any) -> Any:
    x += y
    x[0] = y[1] * 1e-3
    x[1:] *= y[1:]
    return x.sum()
