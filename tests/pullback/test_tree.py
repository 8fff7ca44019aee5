"""Trees of arguments and results: flattened and filled again, compared and hashed."""

import gc
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pullback.tracer import TraceError, flatten, leaf_key, unflatten
from pullback.tracer.arrays.tree import named, paths, static_key

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    weight: Any
    name: str


@dataclass(frozen=True, slots=True)
class Frozen:
    scale: float


TREES = [
    1.5,
    (),
    [],
    {},
    (1, [2.0, (True,)], {"a": 3}),
    {"b": 1, "a": {"c": (2, None)}},
    Point(1.0, [2.0, "text"]),
    Layer(np.float32(2), "first"),
    [Frozen(1.0), Frozen(2.0)],
    OrderedDict(z=1.0, a=2.0),
    {"f": np.sin, "slice": slice(1, 2), "dtype": np.dtype("f4"), "bytes": b"x"},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_filling_gives_the_same_tree(tree: Any) -> None:
    leaves, structure = flatten(tree)
    again = unflatten(structure, leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert structure.count == len(leaves)
    assert flatten(again)[1] == structure
    assert hash(flatten(again)[1]) == hash(structure)


def test_arrays_are_leaves_by_identity() -> None:
    x, y = np.ones(3), np.zeros((2, 2))
    leaves, structure = flatten({"a": (x, [y]), "b": 1})
    assert leaves[0] is x
    assert leaves[1] is y
    assert unflatten(structure, leaves)["a"][1][0] is y


def test_a_default_factory_is_kept() -> None:
    tree = defaultdict(list, a=1.0)
    again = unflatten(*reversed(flatten(tree)))
    assert again == tree
    assert again["new"] == []


def test_order_of_keys_is_kept() -> None:
    leaves, structure = flatten({"b": 1.0, "a": 2.0})
    assert leaves == [1.0, 2.0]
    assert list(unflatten(structure, leaves)) == ["b", "a"]


@pytest.mark.parametrize(
    "x, y",
    [
        ("a", "b"),
        ((1.0,), [1.0]),
        ((1.0, 2.0), (1.0,)),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}),
        (Point(1.0, 2.0), (1.0, 2.0)),
        (None, ()),
        (np.sin, np.cos),
    ],
)
def test_different_structures_differ(x: Any, y: Any) -> None:
    assert flatten(x)[1] != flatten(y)[1]


@pytest.mark.parametrize("x, y", [(1, 1.0), (1, True), (0.0, -0.0), ((1,), (1.0,)), (1, np.int64(1)), ("1", b"1")])
def test_static_values_differ_by_type_and_value(x: Any, y: Any) -> None:
    assert static_key(x) != static_key(y)
    assert named(x) != named(y)


def test_static_nan_is_the_same_as_itself() -> None:
    assert static_key(float("nan")) == static_key(float("nan"))


def test_objects_are_compared_by_identity_unless_named_static() -> None:
    assert flatten([object()])[1] != flatten([object()])[1]
    assert named(Frozen(1.0)) == named(Frozen(1.0))
    assert named(Frozen(1.0)) != named(Frozen(2.0))


def test_static_numbers() -> None:
    leaves, structure = flatten((1, 2.5, np.float64(3.0)), static_numbers=True)
    assert leaves == [np.float64(3.0)]
    assert unflatten(structure, [4]) == (1, 2.5, 4)


def test_a_value_without_hash_is_refused() -> None:
    with pytest.raises(TraceError, match="type bytearray cannot be a static argument"):
        flatten((bytearray(b"a"),))


def test_too_many_leaves() -> None:
    with pytest.raises(ValueError, match="2 leaves for a structure of 1"):
        unflatten(flatten(1.0)[1], [1.0, 2.0])


def test_paths() -> None:
    tree = {"w1": 1.0, "layers": [Point(1.0, 2.0), Layer(3.0, "no leaf")]}
    assert paths(flatten(tree)[1], "p") == ["p['w1']", "p['layers'][0].x", "p['layers'][0].y", "p['layers'][1].weight"]


def test_leaf_keys() -> None:
    x = np.ones((3, 4))
    assert leaf_key(x) == leaf_key(x.copy())
    assert leaf_key(x) != leaf_key(x.T.copy())
    assert leaf_key(x) != leaf_key(x.astype("f4"))
    assert leaf_key(x.T)[2] == "strided"
    assert leaf_key(x[:, ::2])[2] == "strided"
    assert leaf_key(x.astype(">f8"))[2] == "strided"
    assert len({leaf_key(1), leaf_key(True), leaf_key(1.0), leaf_key(np.float64(1.0)), leaf_key(np.float32(1))}) == 5


def test_no_tree_keeps_its_leaves() -> None:
    x = np.ones(3)
    reference = weakref.ref(x)
    gc.disable()
    try:
        flat = flatten([x, {"a": x}])
        del flat, x
        assert reference() is None
    finally:
        gc.enable()
