"""NumPy's names, traced explicitly: ``import pullback.numpy as np``.

Outside a traced function each name is NumPy's own. Inside one it is the tracer's version of that function, even where the
tracer does not follow the calling code: in an installed library of your own, or under a Python whose names cannot be followed.
Results are the same as with plain ``numpy``.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from pullback.numpy import fft as fft
from pullback.numpy import linalg as linalg
from pullback.tracer.names.numpy_namespace import EXTRA, attribute

__array_api_version__ = _numpy.__array_api_version__
if hasattr(_numpy, "__array_namespace_info__"):  # since NumPy 2.1
    __array_namespace_info__ = _numpy.__array_namespace_info__

__all__ = sorted({*_numpy.__all__, *EXTRA, "fft", "linalg"} - {"random"})


def __getattr__(name: str) -> Any:
    return attribute(_numpy, name)


def __dir__() -> list[str]:
    return list(__all__)
