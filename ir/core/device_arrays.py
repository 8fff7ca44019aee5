"""Arrays whose elements lie on a device: what a trace and a program know of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Remote:
    """An array on a device. Its elements do not change, and no Python code reads them without a copy.

    ``device``: where it is, as "cuda:0". ``layout``: "c" (row-major, dense), "strided", or, of rank 0, "held": in memory of the
    device, where a scalar of the host is a number.
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    ndim: int
    device: str
    layout: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What a program depends on in it."""
        return self.dtype, self.shape, self.layout, self.device

    def copy_to_host(self) -> Any:
        """A NumPy array of the elements."""
        raise NotImplementedError

    def copy(self) -> Remote:
        """An array of the same elements in memory of its own."""
        raise NotImplementedError

    def bounds(self) -> tuple[int, int]:
        """Its first address, and the one after its last."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Why its memory cannot be given up for the result of a call; empty if it can."""
        raise NotImplementedError

    def given_up(self, value: Any) -> Remote:
        """An array of the same memory, which has the elements of ``value``, an array of the same type, on the device or not;
        this one is not to be used any more."""
        raise NotImplementedError


COMPUTE: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []
"""What calls a function of NumPy's, or the method of that name, on arrays of a device. Filled by the face."""
