"""Matrix products as kernels, compiled for a machine, and called on arrays that end where memory ends."""

from __future__ import annotations

import ctypes
import functools
import mmap
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir import Function, Module
from pullback.ir.text import parse_module
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.native_addresses import native_address
from tests.support.targets import checked

PAGE = mmap.PAGESIZE
MACHINES = {
    "AVX-512": Target(64),
    "AVX2": Target(32, cache=1 << 18),
    "SSE": Target(16, has_fma=False, cache=1 << 18),
}


def product_text(dtype: str, turned: tuple[bool, bool] = (False, False), layout: str = "") -> str:
    """out = x @ w, plain; ``turned``: which operands are stored transposed; ``layout``: of the operands."""
    x, w = ("[s1,s0" if turned[0] else "[s0,s1"), ("[s2,s1" if turned[1] else "[s1,s2")
    at_x, at_w = ("%p, %i" if turned[0] else "%i, %p"), ("%j, %q" if turned[1] else "%q, %j")
    end = f"; {layout}]" if layout else "]"
    return f"""pullback-ir 2

kernel k(%x: &{dtype}{x}{end}, %w: &{dtype}{w}{end}, %out: &{dtype}[s0,s2]) -> () {{
  %m: i64[] = extent {{size=s0}}
  %n: i64[] = extent {{size=s2}}
  %k: i64[] = extent {{size=s1}}
  product %m, %n, %k (%i: i64[], %p: i64[]) {{
    %0: {dtype}[] = load %x, {at_x}
    yield %0
  }} (%q: i64[], %j: i64[]) {{
    %1: {dtype}[] = load %w, {at_w}
    yield %1
  }} (%i0: i64[], %j0: i64[], %sum: {dtype}[]) {{
    store %sum, %out, %i0, %j0
    yield
  }}
  return
}}
"""


def batch_text(dtype: str, words: tuple[str, str, str] = ("zmk", "zkn", "zmn")) -> str:
    """A batch of products; ``words``: the axes of the left and right operands and of the results, by letters."""
    sizes, index = {"z": "s0", "m": "s1", "k": "s2", "n": "s3"}, {"z": "%z", "m": "%i", "k": "%p", "n": "%j"}
    refs = [f"&{dtype}[{','.join(sizes[c] for c in word)}]" for word in words]
    at = [", ".join(index[c] for c in word) for word in words]
    return f"""pullback-ir 2

kernel k(%x: {refs[0]}, %w: {refs[1]}, %out: {refs[2]}) -> () {{
  %c: i64[] = extent {{size=s0}}
  %m: i64[] = extent {{size=s1}}
  %k: i64[] = extent {{size=s2}}
  %n: i64[] = extent {{size=s3}}
  for %c {{independent=true}} (%z: i64[]) {{
    product %m, %n, %k (%i: i64[], %p: i64[]) {{
      %0: {dtype}[] = load %x, {at[0]}
      yield %0
    }} (%p0: i64[], %j: i64[]) {{
      %1: {dtype}[] = load %w, {at[1].replace("%p", "%p0")}
      yield %1
    }} (%i0: i64[], %j0: i64[], %sum: {dtype}[]) {{
      store %sum, %out, {at[2].replace("%i", "%i0").replace("%j", "%j0")}
      yield
    }}
    yield
  }}
  return
}}
"""


def fenced(array: Any) -> Any:
    """Return a copy with the same strides that ends at an inaccessible page."""
    base = array if array.base is None else array.base
    size = -(-base.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, size + PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert protect(address + size, PAGE, 0) == 0
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    whole = np.frombuffer(memory, np.uint8, base.nbytes, size - base.nbytes)
    result: Any = np.ndarray(array.shape, array.dtype, whole, offset, array.strides)
    result[...] = array
    return result


@dataclass(frozen=True)
class Compiled:
    """A scheduled kernel of one machine."""

    address: int
    slots: tuple[tuple[Any, ...], ...]
    kernel: Function = field(repr=False)

    def __call__(self, arrays: list[Any], sizes: list[int]) -> int:
        """Run it; the status."""

        def value(slot: tuple[Any, ...]) -> int:
            match slot:
                case ("pointer", int(k)):
                    return int(arrays[k].__array_interface__["data"][0])
                case ("stride", int(k), int(axis)):
                    return int(arrays[k].strides[axis])
                case ("size", int(k)):
                    return sizes[k]
            return native_address(slot)

        block = np.array([value(slot) for slot in self.slots], np.int64)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)(block.ctypes.data))


@functools.cache
def compiled_product(text: str, machine: str) -> Compiled:
    """The kernel of a text, scheduled and compiled for a machine of ``MACHINES``."""
    target = MACHINES[machine]
    (kernel,) = checked(parse_module(text)).functions
    scheduled = schedule(kernel, target.cpu, target)
    checked(Module((scheduled,)))
    emitted = emit(scheduled, "k", target)
    return Compiled(default_engine().load(emitted.text, symbols=["k"])["k"], emitted.slots, scheduled)
