"""``pb.export`` and ``pb.load``: a function comes back as it was, for the sizes it serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.compile.object_files import object_symbols
from pullback.runtime.compile.validation import runtime_symbols
from tests.support.exports import CASES, Array, loss, needs_linker, normal, same

pytestmark = pytest.mark.usefixtures("our_products")


@needs_linker
@pytest.mark.parametrize("name", CASES)
def test_a_library_comes_back_as_the_function(name: str, tmp_path: Path) -> None:
    function, specs, calls = CASES[name]
    built = pb.export(function, *specs, path=tmp_path / "model")
    assert built.library is not None
    loaded = pb.load(built.library, trust=True)
    for call in calls:
        same(loaded(*call), pb.jit(function)(*call))


@pytest.mark.parametrize("name", ["gradient", "saved by a while", "solve"])
def test_an_object_needs_little_from_outside(name: str, tmp_path: Path) -> None:
    function, specs, _ = CASES[name]
    built = pb.export(function, *specs, path=tmp_path / "model")
    result = object_symbols(built.object.read_bytes())
    assert result is not None
    defined, undefined = result
    assert undefined <= {"realloc", "free"} | runtime_symbols("x86_64-unknown-linux-gnu")
    names = {"model", "model_call", "model_init", "model_error", "model_result_shape", "model_manifest", "pullback_exported"}
    assert defined == names


def test_the_sizes_that_are_served_are_found(tmp_path: Path) -> None:
    def by_size(x: Array) -> Any:
        return x.sum() if len(x) <= 1234 else x.max()

    built = pb.export(by_size, "f64[n]", path=tmp_path / "model")
    assert built.extents == {"n": (0, 1234)}
    assert "n: an extent, from 0 to 1,234" in built.header.read_text()
    if built.library is not None:
        loaded = pb.load(built.library, trust=True)
        assert loaded(np.ones(1234)) == 1234
        with pytest.raises(ValueError, match="n from 0 to 1234, found 1235"):
            loaded(np.ones(1235))


@pytest.mark.parametrize("function", [
    lambda x: sum(x[k] for k in range(len(x))), lambda x: x * (len(x) % 3), lambda x: x * float(np.log(len(x))),
    lambda x: x[::2].sum() if len(x) % 2 else x.max(),
], ids=["loop", "remainder", "logarithm", "parity"])  # fmt: skip
def test_what_depends_on_a_size_is_refused(function: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="is not one program for all sizes"):
        pb.export(function, "f64[n]", path=tmp_path / "model")
    assert not list(tmp_path.iterdir())
    assert pb.export(function, "f64[70]", path=tmp_path / "model").extents == {}


def test_arrays_made_of_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="an array that the function makes without its arguments is another one"):
        pb.export(lambda x: x * np.hanning(len(x)), "f64[n]", path=tmp_path / "model")


def test_lone_sizes_are_looked_for(tmp_path: Path) -> None:
    def by_multiple(x: Array) -> Any:
        return x.sum() if len(x) % 64 == 0 else x.max()

    with pytest.raises(pb.ExportError, match="is not one program"):
        pb.export(by_multiple, "f64[n]", path=tmp_path / "model")


def test_sizes_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    def by_both(x: Array, y: Array) -> Any:
        return x.sum() + y.sum() if len(x) > len(y) else x.sum() * y.sum()

    with pytest.raises(pb.ExportError, match="is not one program"):
        pb.export(by_both, "f64[n]", "f64[m]", path=tmp_path / "model")


def test_extents_that_must_be_equal_have_one_name(tmp_path: Path) -> None:
    with pytest.raises((pb.ExportError, pb.TraceError)) as caught:
        pb.export(lambda x, y: x * y, "f64[n]", "f64[m]", path=tmp_path / "model")
    assert "one name" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@needs_linker
def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    built = pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "model")
    loaded = pb.load(str(built.library), trust=True)
    w, x, y = normal(3), normal(7, 3), normal(7)
    same(loaded(w, y=y, x=x), pb.value_and_grad(loss)(w, x, y))
    same(loaded(w, np.asfortranarray(x), y[::-1][::-1]), pb.value_and_grad(loss)(w, x, y))
    with pytest.raises(ValueError, match=r"y has shape \(6,\): \(7,\) is expected with n=7"):
        loaded(w, x, y[:6])
    with pytest.raises(ValueError, match=r"w has shape \(4,\): \(3,\) is expected"):
        loaded(normal(4), x, y)
    with pytest.raises(TypeError, match=r"x is float32\[7, 3\]: float64\[n, 3\] is expected"):
        loaded(w, x.astype("f4"), y)
    with pytest.raises(TypeError, match="w is a list"):
        loaded([1.0, 2.0, 3.0], x, y)
    with pytest.raises(TypeError, match="misses 'y'"):
        loaded(w, x)
    with pytest.raises(TypeError, match="got 'z'"):
        loaded(w, x, y, z=1)
    with pytest.raises(TypeError, match="3 positional"):
        loaded(w, x, y, y)


@needs_linker
def test_what_was_static_must_be_the_same(tmp_path: Path) -> None:
    built = pb.export(
        lambda x, mode, n: np.reshape(x if mode == "a" else -x, (n, -1)), "f64[12]", "a", 3, path=tmp_path / "model"
    )
    loaded = pb.load(str(built.library), trust=True)
    assert loaded(np.ones(12), "a", 3).shape == (3, 4)
    with pytest.raises(TypeError, match="exported for 'a'"):
        loaded(np.ones(12), "b", 3)
    with pytest.raises(ValueError, match="exported for 3"):
        loaded(np.ones(12), "a", 4)
    built = pb.export(pb.jit(np.reshape, static_argnames="shape"), "f64[12]", (3, 4), path=tmp_path / "other")
    assert pb.load(str(built.library), trust=True)(np.ones(12), (3, 4)).shape == (3, 4)
