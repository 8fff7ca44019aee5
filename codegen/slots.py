"""Define the argument slots of a compiled kernel, which its caller fills."""

from typing import Any

Slot = tuple[Any, ...]
"""A kind and its details, e.g. ("pointer", position): ``codegen.cpu.llvm.text.Emitted`` lists them."""
