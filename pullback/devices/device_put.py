"""Implement ``pb.device_put``, which creates arrays on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.runtime.cuda.arrays.device_array import DeviceArray, uploaded
from pullback.runtime.cuda.driver.driver import checked
from pullback.tracer.arrays.tree import flatten, unflatten


def device_put(x: Any, device: str = "cuda") -> Any:
    """Return a tree with its arrays and numbers on a device.

    Arrays already on the device are returned unchanged, those of other libraries without a copy; leaves that are neither arrays
    nor numbers stay.

    Parameters
    ----------
    x : array, number or container of them
        What to move.
    device : str, optional
        "cuda", "cuda:N", or "cpu", which returns NumPy arrays.

    Returns
    -------
    DeviceArray, array or container of them
        The same tree, with arrays on the device.

    Raises
    ------
    DeviceError
        If there is no such device, or not enough memory on it.

    See Also
    --------
    DeviceArray : The arrays on a device.

    Examples
    --------
    >>> pb.device_put({"w": np.ones(2), "b": 0.5}, "cpu")
    {'w': array([1., 1.]), 'b': array(0.5)}
    >>> pb.device_put(np.ones(2), "cuda").device  # needs a device
    'cuda:0'
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
