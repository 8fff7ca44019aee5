"""The layout of the worker pool's state, and the lines of LLVM IR that address it."""

from __future__ import annotations

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.environment import MOST_THREADS

# The fields of %state, 64 bits each; first the functions that generated code calls.
FIELDS = (
    *THREADS, "threads", "busy", "gate", "started", "sleeping", "waiting", "stop", "function", "context", "failure", "members",
    "mode", "create", "join", "lock", "unlock", "wait", "signal", "mask", "block_all", "dispatched", "yield", "processor",
    "where", "affinity", "bind", "came", "passes",
    "users", "guard", "blas_get", "blas_set", "blas_before",
)  # fmt: skip
MUTEX = -(-8 * len(FIELDS) // 64) * 64
WORK, DONE, HANDLES, RANGES = MUTEX + 64, MUTEX + 128, MUTEX + 192, MUTEX + 192 + 8 * MOST_THREADS
"""Byte offsets of the condition "there is work", the condition "all are done", the thread handles, and the threads' chunk
ranges."""
RANGE = 64
STATE_BYTES = RANGES + RANGE * MOST_THREADS

OPEN = 1 << 15
"""The bit of the gate that is set while threads may enter. The bits below count the threads inside; the bits above are the
ordinal of the loop."""
INSIDE = OPEN - 1
"""The bits of the gate that count the threads inside."""


def at(name: str, field: str) -> str:
    """Return a line that computes the address of a field."""
    return f"%{name} = getelementptr i64, ptr %state, i64 {FIELDS.index(field)}"


def part(name: str, offset: int) -> str:
    """Return a line that computes the address ``offset`` bytes after the start of the state."""
    return f"%{name} = getelementptr i8, ptr %state, i64 {offset}"


def call(function: str, *parts: str) -> str:
    """Return lines that call a function of the thread library on parts of the state."""
    offsets = {"mutex": MUTEX, "work": WORK, "done": DONE}
    name = f"{function}.{'.'.join(parts)}"
    lines = [at(f"{name}.at", function), f"%{name}.f = load ptr, ptr %{name}.at"]
    lines += [part(f"{name}.{p}", offsets[p]) for p in parts]
    arguments = ", ".join(f"ptr %{name}.{p}" for p in parts)
    lines.append(f"%{name}.r = call i32 %{name}.f({arguments})")
    return "\n  ".join(lines)
