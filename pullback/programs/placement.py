"""Where a call runs, and what stands there for arrays of other libraries."""

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


def device_of(asked: str | None, leaves: Sequence[Any]) -> str:
    """The device of a call with these leaves: the one that was asked for, else where its arrays are, else the CPU. Raises
    ValueError where arrays lie on another one."""
    found = dict.fromkeys(leaf.device for leaf in leaves if isinstance(leaf, Remote))
    if not found:
        return asked or "cpu"
    wanted = asked or next(iter(found))
    other = next((name for name in found if name != wanted), None)
    if other is None:
        return wanted
    if wanted == "cpu":
        raise ValueError(
            f'an argument is on {other}, and the function is for device="cpu"; pass x.copy_to_host(), or jit it without a device'
        )
    what = f"the function is for {wanted}" if asked else f"another on {wanted}"
    raise ValueError(f"an argument is on {other}, and {what}; pass pb.device_put(x, {wanted!r})")


def _adopted(x: Any) -> Any:
    """What stands for an array of another library on a device, in which the library may not be met yet."""
    kind = type(x)
    if not hasattr(kind, "__cuda_array_interface__") and not hasattr(kind, "__dlpack_device__"):
        return None
    return cuda_foreign.adopted(x)


ADOPT.append(_adopted)
