"""Expressions with objects of other libraries, which the compiled program computes as the plain one does, or refuses.

``OBJECTS`` makes the objects anew, by library. In the tables, tests/labelled, ``x`` is an array of four floats and ``y`` a float;
what is behind ``=== computed`` has to compute, what is behind ``=== equal or refused`` computes the same or is a TraceError that
says what gives the array.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.support.paths import TESTS

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


def of_pandas() -> dict[str, Any]:
    import pandas as pd

    rows = pd.MultiIndex.from_product([["a", "b"], [1, 2]])
    return {
        "pd": pd,
        "s": pd.Series([1.0, 2.0, 4.0, 8.0]),
        "t": pd.Series([3.0, 1.0, -2.0, 0.5]),
        "sn": pd.Series([1.0, np.nan, 3.0, 0.5]),
        "si": pd.Series([1, 2, 4, 0]),
        "sb": pd.Series([True, False, True, True]),
        "sf": pd.Series([1.0, 2.0, 4.0, 8.0], dtype="float32"),
        "sl": pd.Series([1.0, 2.0, 4.0, 8.0], index=list("dcba")),
        "sd": pd.Series([1.0, 2.0, 4.0, 8.0], index=[0, 0, 1, 1]),
        "sm": pd.Series([1.0, 2.0, 4.0, 8.0], index=rows),
        "s8": pd.Series([100, 50, -100, 3], dtype="int8"),
        "sI": pd.Series([1, 2, None, 4], dtype="Int64"),
        "sJ": pd.Series([1, 2, 3, 4], dtype="Int64"),
        "sF": pd.Series([1.0, 2.0, None, 4.0], dtype="Float64"),
        "sB": pd.Series([True, None, False, True], dtype="boolean"),
        "sc": pd.Series([3, 1, 3, 2], dtype="category"),
        "st": pd.Series(np.array(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"], "M8[ns]")),
        "ss": pd.Series(["a", "b", "c", "d"]),
        "so": pd.Series([1, 2.5, 3, 4], dtype=object),
        "sp": pd.Series(pd.arrays.SparseArray([1.0, 0.0, 0.0, 2.0])),
        "df": pd.DataFrame({"a": [1.0, 2.0, 4.0, 8.0], "b": [5.0, 6.0, 7.0, np.nan]}),
        "dg": pd.DataFrame({"b": [1.0, 2.0, 4.0, 8.0], "a": [5.0, 6.0, 7.0, 8.0]}),
        "dm": pd.DataFrame({"a": [1, 2, 4, 8], "b": [5.0, 6.0, 7.0, 8.0]}),
        "dq": pd.DataFrame(np.arange(16.0).reshape(4, 4) + 1),
        "dl": pd.DataFrame(np.arange(16.0).reshape(4, 4) + 1, columns=list("dcba")),
        "ix": pd.Index([1.0, 2.0, 4.0, 8.0]),
    }


def of_xarray() -> dict[str, Any]:
    import xarray as xr

    return {
        "xr": xr,
        "d": xr.DataArray([1.0, 2.0, 4.0, 8.0], dims="t"),
        "dn": xr.DataArray([1.0, np.nan, 4.0, 8.0], dims="t"),
        "dc": xr.DataArray([1.0, 2.0, 4.0, 8.0], dims="t", coords={"t": [10, 20, 30, 40]}),
        "de": xr.DataArray([1.0, 2.0, 4.0, 8.0], dims="t", coords={"t": [40, 30, 20, 10]}),
        "du": xr.DataArray([1.0, 2.0, 4.0, 8.0], dims="u"),
        "a": xr.DataArray(np.arange(4.0).reshape(2, 2) + 1, dims=("p", "q")),
        "b": xr.DataArray(np.arange(4.0).reshape(2, 2) + 1, dims=("q", "p")),
        "di": xr.DataArray([1, 2, 4, 8], dims="t"),
        "v": xr.Variable("t", [1.0, 2.0, 4.0, 8.0]),
        "ds": xr.Dataset({"u": ("t", [1.0, 2.0]), "v": ("t", [3.0, 4.0])}),
    }


def of_polars() -> dict[str, Any]:
    import polars as pl

    return {
        "pl": pl,
        "s": pl.Series("s", [1.0, 2.0, 4.0, 8.0]),
        "t": pl.Series("t", [3.0, 1.0, -2.0, 0.5]),
        "sn": pl.Series([1.0, None, 3.0, 0.5]),
        "sx": pl.Series([1.0, float("nan"), 3.0, 0.5]),
        "si": pl.Series([1, 2, 4, 0]),
        "sb": pl.Series([True, False, True, True]),
        "sf": pl.Series([1.0, 2.0, 4.0, 8.0], dtype=pl.Float32),
        "ss": pl.Series(["a", "b", "c", "d"]),
        "df": pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
    }


def of_torch() -> dict[str, Any]:
    return {
        "torch": torch,
        "t": torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64),
        "u": torch.tensor([3.0, 1.0, -2.0, 0.5], dtype=torch.float64),
        "tf": torch.tensor([1.0, 2.0, 4.0, 8.0]),
        "ti": torch.tensor([1, 2, 4, 3]),
        "tj": torch.tensor([2, 2, 3, 3], dtype=torch.int32),
        "tb": torch.tensor([True, False, True, True]),
        "m": torch.arange(4.0, dtype=torch.float64).reshape(2, 2) + 1,
        "z": torch.tensor(2.0, dtype=torch.float64),
        "w": torch.nn.Parameter(torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)),
    }


def of_dask() -> dict[str, Any]:
    import dask.array as da

    return {"da": da, "d": da.from_array(np.array([1.0, 2.0, 4.0, 8.0]), chunks=2)}


def of_numpy() -> dict[str, Any]:
    return {
        "m": np.ma.array([1.0, 2.0, 4.0, 8.0], mask=[False, True, False, False]),
        "k": np.ma.array([1, 2, 4, 8], mask=[True, True, True, True]),
        "M": np.matrix([[1.0, 2.0], [3.0, 4.0]]),
        "o": Masked(np.array([1.0, 2.0, 4.0, 8.0])),
        "r": Reversed(np.array([1.0, 2.0, 4.0, 8.0])),
        "f": np.array([1.0, 2.0, 4.0, 8.0]).view(Doubling),
    }


def of_pint() -> dict[str, Any]:
    import pint

    units = pint.UnitRegistry()
    return {"units": units, "q": np.array([1.0, 2.0, 4.0, 8.0]) * units.metre, "p": np.array([1.0, 2.0, 4.0, 8.0]) * units.second}


class Masked(np.ndarray):
    """An array whose sum is another."""

    def __new__(cls, x: Any) -> Any:
        return np.asarray(x).view(cls)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self)[1:].sum(*args, **kwargs)


class Doubling(np.ndarray):
    """An array that doubles what it is multiplied with."""

    def __mul__(self, other: Any) -> Any:
        return np.asarray(self) * 2 * np.asarray(other)

    __rmul__ = __mul__


class Reversed:
    """What has operators of its own, and converts to an array."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.data, dtype)

    def __mul__(self, other: Any) -> Any:
        return self.data[::-1] * other

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return self.data[::-1] + other

    __radd__ = __add__


OBJECTS: dict[str, Callable[[], dict[str, Any]]] = {
    "pandas": of_pandas, "xarray": of_xarray, "polars": of_polars, "dask": of_dask, "numpy": of_numpy, "pint": of_pint,
    "torch": of_torch,
}  # fmt: skip

FOLDER = TESTS / "labelled"


def lines(library: str) -> Iterator[tuple[bool, str]]:
    """The lines of a library's table, of one or more expressions each, and whether they have to compute."""
    must = False
    for line in (FOLDER / f"{library}.txt").read_text().splitlines():
        if line.startswith("==="):
            must = line == "=== computed"
        elif line:
            yield must, line
