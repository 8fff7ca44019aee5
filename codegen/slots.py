"""What an argument of a compiled kernel is, as its caller has to supply it."""

from typing import Any

Slot = tuple[Any, ...]
"""A kind and its details, e.g. ("pointer", position): ``codegen.cpu.llvm.text.Emitted`` lists them."""
