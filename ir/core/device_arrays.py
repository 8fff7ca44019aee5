"""The interface of arrays on a device, as a trace and a compiled program see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Remote:
    """An array on a device. It is immutable, and Python code reads its elements only by a copy to the host.

    ``device``: its device, as "cuda:0". ``layout``: "c" (row-major, dense), "strided", or, for rank 0, "held": the scalar is
    in device memory, whereas a scalar of the host is passed by value.
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    ndim: int
    device: str
    layout: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The properties that a compiled program is specialised to."""
        return self.dtype, self.shape, self.layout, self.device

    def copy_to_host(self) -> Any:
        """Return a NumPy array with the elements."""
        raise NotImplementedError

    def copy(self) -> Remote:
        """Return an array with the same elements in new memory."""
        raise NotImplementedError

    def bounds(self) -> tuple[int, int]:
        """Return the address of its first byte and the address after its last."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Return why its memory cannot be reused for the result of a call; the empty string if it can."""
        raise NotImplementedError

    def given_up(self, value: Any) -> Remote:
        """Return an array in the same memory with the elements of ``value``, an array of the same type on the device or the
        host. This array must not be used afterwards."""
        raise NotImplementedError


COMPUTE: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []
"""The function that applies a NumPy function, or the method of that name, to device arrays. Filled by the public package."""
