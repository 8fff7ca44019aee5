"""Choose the device of a call, and adopt device arrays of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.lazy_imports import later
from pullback.tracer.arrays.tree import ADOPT

if TYPE_CHECKING:
    from pullback.runtime.cuda.arrays import foreign as cuda_foreign
else:
    cuda_foreign = later("pullback.runtime.cuda.arrays.foreign")


def device_of(requested: str | None, leaves: Sequence[Any]) -> str:
    """Return the device of a call with these leaves: the requested one, else the device of its arrays, else the CPU.

    Raises ValueError if an array is on another device.
    """
    devices = dict.fromkeys(leaf.device for leaf in leaves if isinstance(leaf, Remote))
    if not devices:
        return requested or "cpu"
    wanted = requested or next(iter(devices))
    other = next((name for name in devices if name != wanted), None)
    if other is None:
        return wanted
    if wanted == "cpu":
        raise ValueError(
            f'an argument is on {other}, and the function is for device="cpu"; pass x.copy_to_host(), or jit it without a device'
        )
    reason = f"the function is for {wanted}" if requested else f"another on {wanted}"
    raise ValueError(f"an argument is on {other}, and {reason}; pass pb.device_put(x, {wanted!r})")


def _adopted(x: Any) -> Any:
    """Return the array that stands for a device array of another library, which may not be imported yet; None for other
    objects."""
    kind = type(x)
    if not hasattr(kind, "__cuda_array_interface__") and not hasattr(kind, "__dlpack_device__"):
        return None
    return cuda_foreign.adopted(x)


ADOPT.append(_adopted)
