"""Arrays on devices: how they are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.runtime.cuda.arrays.device_array import DeviceArray, uploaded
from pullback.runtime.cuda.driver.driver import checked
from pullback.tracer.arrays.tree import flatten, unflatten


def device_put(x: Any, device: str = "cuda") -> Any:
    """The arrays and numbers of a tree on a device: "cuda", "cuda:N", or "cpu", which gives NumPy's.

    Arrays that are there already come as they are, those of other libraries without a copy; what is neither an array nor a number
    stays. Raises DeviceError where there is no such device, or no memory on it.
    """
    name = checked(device)
    leaves, tree = flatten(x)
    return unflatten(tree, [_put(leaf, name) for leaf in leaves])


def _put(leaf: Any, name: str) -> Any:
    if isinstance(leaf, Remote):
        if leaf.device == name:
            return leaf
        leaf = leaf.copy_to_host()
    array = np.asarray(leaf)
    return array if name == "cpu" else uploaded(array, name, f"an array of {array.dtype} and shape {array.shape}")


__all__ = ["DeviceArray", "device_put"]
