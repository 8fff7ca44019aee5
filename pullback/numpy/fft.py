"""The names of ``numpy.fft``, traced explicitly; see ``pullback.numpy``."""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from pullback.tracer.names.numpy_namespace import attribute

__all__ = sorted(_numpy.fft.__all__)


def __getattr__(name: str) -> Any:
    return attribute(_numpy.fft, name)


def __dir__() -> list[str]:
    return list(__all__)
