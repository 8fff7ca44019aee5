"""``pb.tree``: trees of parameters, outside and inside transformed functions."""

import copy
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.tracer import TraceError
from tests.support.api import same

Pair = namedtuple("Pair", "a b")


@dataclass
class Layer:
    w: Any
    b: Any
    name: str = "relu"

    def apply(self, x: Any) -> Any:
        return np.vstack([x @ self.w, np.ones(2) * self.b])


class Affine:
    """A class of a user's, with a part that is no array."""

    def __init__(self, matrix: Any, shift: Any, name: str = "affine") -> None:
        self.matrix, self.shift, self.name = matrix, shift, name

    def __call__(self, x: Any) -> Any:
        return np.zeros(len(x)) + self.matrix @ x + self.shift


pb.tree.register(Affine, lambda a: ((a.matrix, a.shift), a.name), lambda name, parts: Affine(*parts, name=name))

SCALE = Affine(np.eye(2), 1.0)


class Closed:
    """Registered, with a flatten that is wrong."""


pb.tree.register(Closed, lambda c: 3, lambda data, parts: Closed())  # type: ignore[arg-type, return-value]


def test_leaves_and_structure() -> None:
    tree = {"b": [1.0, None], "a": (np.arange(3), "text", Pair(2, True))}
    assert list(map(type, pb.tree.leaves(tree))) == [float, np.ndarray, int, bool]
    structure = pb.tree.flatten(tree)[1]
    assert structure == pb.tree.structure(tree)
    assert str(structure) == "dict(b=list(*, None), a=tuple(*, 'text', Pair(a=*, b=*)))"
    again = pb.tree.unflatten(structure, ["p", "q", "r", "s"])
    assert again == {"b": ["p", None], "a": ("q", "text", Pair("r", "s"))}


@pytest.mark.parametrize("count", [1, 3])
def test_unflatten_counts_its_leaves(count: int) -> None:
    with pytest.raises(ValueError, match=rf"{count} leaves for a structure of 2: tuple\(\*, \*\)"):
        pb.tree.unflatten(pb.tree.structure((1.0, 2.0)), [0.0] * count)


MAPPED: list[tuple[Any, Any]] = [
    ((1.0, [2, None]), (2.0, [4, None])),
    (Pair(1.0, {}), Pair(2.0, {})),
    (OrderedDict(b=1, a=2), OrderedDict(b=2, a=4)),
    (defaultdict(list, a=1), defaultdict(list, a=2)),
    (Layer(1.0, 2.0), Layer(2.0, 4.0)),
    (None, None),
    (3, 6),
]


@pytest.mark.parametrize("tree, expected", MAPPED, ids=repr)
def test_map_keeps_the_containers(tree: Any, expected: Any) -> None:
    result = pb.tree.map(lambda x: 2 * x, tree)
    assert result == expected
    assert type(result) is type(tree)


def test_map_over_several_matches_keys() -> None:
    result = pb.tree.map(lambda a, b, c: a + b * c, {"x": 1, "y": (2,)}, {"y": (20,), "x": 10}, {"x": 2, "y": (3,)})
    assert result == {"x": 21, "y": (62,)}
    assert list(result) == ["x", "y"]


MISMATCHES: list[tuple[Any, Any, str]] = [
    ({"a": [1.0, 2.0]}, {"a": [1.0]}, r"tree\['a'\]: 2 children in the first, 1 children in tree 2"),
    ({"a": 1.0}, {"b": 1.0}, r"tree: keys \['a'\] in the first, keys \['b'\] in tree 2"),
    ({"a": (1.0, (2.0,))}, {"a": (1.0, 2.0)}, r"tree\['a'\]\[1\]: a tuple in the first, a leaf in tree 2"),
    (Layer(1.0, [2.0]), Layer(1.0, (2.0,)), r"tree\.b: a list in the first, a tuple in tree 2"),
    (Layer(1.0, 2.0), Layer(1.0, 2.0, "tanh"), r"tree\.name: 'relu' in the first, 'tanh' in tree 2"),
    (Affine(1.0, 2.0), Affine(1.0, 2.0, "other"), r"tree: a Affine with 'affine' in the first"),
    ([None], [1.0], r"tree\[0\]: None in the first, a leaf in tree 2"),
]


@pytest.mark.parametrize("first, second, message", MISMATCHES)
def test_structures_that_differ_are_named(first: Any, second: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pb.tree.map(lambda a, b: a, first, second)


RAVELLED: list[tuple[Any, str]] = [
    ({"w": np.arange(6.0).reshape(2, 3), "b": 0.5}, "f8"),
    ([np.ones(2, np.float32), np.zeros((0, 3), np.float32)], "f4"),
    ((np.float32(2), np.array(3.0), np.arange(4, dtype=np.int16), True, 7), "f8"),
    ({"f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "s": np.arange(8)[::2], "n": None}, "f8"),
    ((np.arange(3, dtype=">f8"), np.arange(2, dtype=">i4")), "f8"),
    (np.array([1 + 2j]), "c16"),
    ({}, "f8"),
    (2.5, "f8"),
    (Affine(np.eye(2), np.float32(3)), "f8"),
]


@pytest.mark.parametrize("tree, dtype", RAVELLED, ids=range(len(RAVELLED)))
def test_ravel_and_back(tree: Any, dtype: str) -> None:
    vector, unravel = pb.tree.ravel(tree)
    assert vector.dtype == np.dtype(dtype)
    assert vector.shape == (unravel.size,) == (sum(np.size(x) for x in pb.tree.leaves(tree)),)
    for result in (unravel(vector), pickle.loads(pickle.dumps(unravel))(vector), copy.deepcopy(unravel)(vector)):
        assert type(result) is type(tree)
        for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(tree), strict=True):
            same(a, b)
            assert not np.shares_memory(np.asarray(a), vector)
            assert not np.shares_memory(np.asarray(a), np.asarray(b))


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.sampled_from([1.0, 2, True, None, np.float32(3), np.arange(3.0), np.zeros((2, 0)), np.ones((2, 2), np.float32)]),
        lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.sampled_from("abc"), inner),
        max_leaves=8,
    )
)
def test_a_traced_ravel_is_the_plain_one(tree: Any) -> None:
    def twice(tree: Any) -> Any:
        vector, unravel = pb.tree.ravel(tree)
        return vector, unravel(2 * vector)

    plain, traced = twice(tree), pb.jit(twice)(tree)
    same(traced[0], plain[0])
    assert pb.tree.structure(traced[1]) == pb.tree.structure(tree)
    for a, b in zip(pb.tree.leaves(traced[1]), pb.tree.leaves(plain[1]), strict=True):
        np.testing.assert_array_equal(a, b, strict=not isinstance(b, float | int))


@pytest.mark.parametrize("vector", [np.zeros(2), np.zeros((3, 1)), 1.0])
def test_unravel_takes_its_own_size(vector: Any) -> None:
    _, unravel = pb.tree.ravel({"w": np.zeros(3)})
    with pytest.raises(ValueError, match=r"shape \(3,\) for dict\(w=\*\), got shape"):
        unravel(vector)


@pytest.mark.parametrize("leaf", [np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(1, [("x", "f8")])])
def test_ravel_takes_numbers(leaf: Any) -> None:
    with pytest.raises(TypeError, match=r"the leaf at tree\['a'\]\[1\] is of dtype"):
        pb.tree.ravel({"a": [1.0, leaf]})


def test_minimize_over_a_dict_of_parameters() -> None:
    """The six lines that the documentation shows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, -2.0, 3.0] + 0.5

    start, unravel = pb.tree.ravel({"w": np.zeros(3), "b": 0.0})

    @pb.value_and_grad
    def loss(vector: Any) -> Any:
        p = unravel(vector)
        return np.mean((X @ p["w"] + p["b"] - y) ** 2)

    best = unravel(scipy.optimize.minimize(loss, start, jac=True).x)
    np.testing.assert_allclose(best["w"], [1.0, -2.0, 3.0], atol=1e-4)
    assert isinstance(best["b"], float)
    np.testing.assert_allclose(best["b"], 0.5, atol=1e-4)


def test_another_unravel_is_not_mistaken_for_the_first() -> None:
    def loss(v: Any) -> Any:
        return unravel(v)["a"].sum()

    f = pb.jit(loss)
    for tree, expected in (({"a": np.zeros(1), "b": np.zeros(2)}, 0.0), ({"b": np.zeros(2), "a": np.zeros(1)}, 2.0)):
        _, unravel = pb.tree.ravel(tree)
        assert f(np.arange(3.0)) == expected


def test_a_step_of_descent_inside_a_transformed_function() -> None:
    def loss(p: Any, x: Any) -> Any:
        return np.sum(p["layers"][0].apply(x)) + p["scale"] ** 2

    @pb.jit
    def step(p: Any, x: Any) -> Any:
        return pb.tree.map(lambda a, g: a - 0.1 * g, p, pb.grad(loss)(p, x))

    p = {"layers": [Layer(np.ones((2, 2)), np.zeros(2))], "scale": 3.0}
    result = step(p, np.eye(2))
    assert type(result["layers"][0]) is Layer
    assert result["layers"][0].name == "relu"
    np.testing.assert_allclose(result["layers"][0].w, 0.9 * np.ones((2, 2)))
    np.testing.assert_allclose(result["scale"], 3 - 0.6)


def test_objects_made_by_map_are_followed() -> None:
    @pb.jit
    def f(layer: Any, x: Any) -> Any:
        return pb.tree.map(lambda a: 2 * a, layer).apply(x)

    layer = Layer(np.ones((2, 2)), np.arange(2.0))
    np.testing.assert_array_equal(f(layer, np.eye(2)), Layer(2 * layer.w, 2 * layer.b).apply(np.eye(2)))


def test_a_registered_class_is_argument_result_and_gradient() -> None:
    def loss(a: Affine, x: Any) -> Any:
        return np.sum(a(x) ** 2)

    a, x = Affine(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2), "first"), np.array([1.0, -1.0])
    value, gradient = pb.value_and_grad(loss)(a, x)
    np.testing.assert_allclose(value, loss(a, x))
    assert type(gradient) is Affine
    assert gradient.name == "first"
    np.testing.assert_allclose(gradient.matrix, np.outer(2 * a(x), x))
    np.testing.assert_allclose(gradient.shift, 2 * a(x))

    doubled = pb.jit(lambda a: Affine(2 * a.matrix, a.shift, a.name + "!"))(a)
    assert (type(doubled), doubled.name) == (Affine, "first!")
    np.testing.assert_array_equal(doubled.matrix, 2 * a.matrix)

    name_of = pb.jit(lambda a: a.shift + len(a.name))
    np.testing.assert_array_equal(name_of(a), a.shift + 5)
    np.testing.assert_array_equal(name_of(Affine(a.matrix, a.shift, "other one")), a.shift + 9)


def test_gradients_in_a_registered_class_are_followed() -> None:
    @pb.jit
    def f(a: Any, x: Any) -> Any:
        return pb.grad(lambda a: np.sum(a(x) ** 2))(a)(x)

    a, x = Affine(np.eye(2), np.ones(2)), np.array([1.0, 2.0])
    np.testing.assert_allclose(f(a, x), Affine(np.outer(2 * a(x), x), 2 * a(x))(x))


def test_a_registered_object_from_outside_is_a_tree() -> None:
    global SCALE
    f = pb.jit(lambda x: pb.tree.map(lambda leaf: leaf * x, SCALE).matrix)
    np.testing.assert_array_equal(f(3.0), 3 * np.eye(2))
    SCALE = Affine(2 * np.eye(2), 1.0)
    np.testing.assert_array_equal(f(3.0), 6 * np.eye(2))


def test_registering_again_is_seen() -> None:
    class Box:
        def __init__(self, x: Any, tag: Any = None) -> None:
            self.x, self.tag = x, tag

    pb.tree.register(Box, lambda b: ((b.x,), None), lambda data, parts: Box(parts[0], "first"))
    f = pb.jit(lambda x: Box(x))
    g = pb.jit(lambda b: b.x + 1.0)
    assert (f(1.0).tag, g(Box(1.0))) == ("first", 2.0)
    pb.tree.register(Box, lambda b: ((2 * b.x,), None), lambda data, parts: Box(parts[0], "second"))
    assert (f(1.0).tag, f(1.0).x, g(Box(1.0))) == ("second", 2.0, 3.0)


@pytest.mark.parametrize("kind", [int, np.ndarray, np.float64, dict, OrderedDict, Pair, 3])
def test_leaves_and_containers_are_not_registered(kind: Any) -> None:
    with pytest.raises(TypeError):
        pb.tree.register(kind, lambda x: ((), None), lambda data, parts: None)


def test_a_wrong_flatten_is_named() -> None:
    with pytest.raises(TypeError, match=r"flatten of Closed must return a pair \(children, data\)"):
        pb.tree.leaves(Closed())
    with pytest.raises(TraceError, match="no hash"):
        pb.tree.structure(bytearray(b"a"))


def test_what_has_no_hash_is_kept_by_map() -> None:
    tree = {"w": 1.0, "names": {1, 2}}
    assert pb.tree.leaves(tree) == [1.0]
    assert pb.tree.map(lambda a, b: a + b, tree, {"w": 2.0, "names": {1, 2}}) == {"w": 3.0, "names": {1, 2}}
    with pytest.raises(ValueError, match=r"tree\['names'\]: \{1, 2\} in the first, \{3\} in tree 2"):
        pb.tree.map(lambda a, b: a + b, tree, {"w": 2.0, "names": {3}})


def test_what_a_traced_array_answers_to(capsys: Any) -> None:
    @pb.jit(effects="trace")
    def f(theta: Any, X: Any) -> Any:
        a, b, *c = theta
        assert X.ndim == 2 and isinstance(X, np.ndarray) and isinstance(theta, np.ndarray)
        print(X, a)
        print(f"{X} {a!r} {3.0}")
        rows = [row.sum() for row in X]
        return a * rows[0] + b * sum(rows) + sum(c), X.shape, len(X), len(c)

    theta, X = np.arange(4.0), np.arange(6.0).reshape(2, 3)
    for _ in range(2):
        assert f(theta, X) == (0 * 3 + 1 * 15 + 5, (2, 3), 2, 2)
    assert capsys.readouterr().out == "traced f64[2,3] X traced f64[]\ntraced f64[2,3] X traced f64[] 3.0\n"
