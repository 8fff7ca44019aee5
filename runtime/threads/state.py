"""Where things lie in the state of the threads (``crew``), and the lines of LLVM IR that reach them."""

from __future__ import annotations

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.environment import MOST_THREADS

# The fields of %state, 64 bits each; first the functions that emitted code calls.
FIELDS = (
    *THREADS, "threads", "busy", "gate", "started", "sleeping", "waiting", "stop", "function", "context", "failure", "members",
    "mode", "create", "join", "lock", "unlock", "wait", "signal", "mask", "block_all", "dispatched", "yield", "processor",
    "where", "affinity", "bind", "came", "passes",
    "users", "guard", "blas_get", "blas_set", "blas_before",
)  # fmt: skip
MUTEX = -(-8 * len(FIELDS) // 64) * 64
WORK, DONE, HANDLES, RANGES = MUTEX + 64, MUTEX + 128, MUTEX + 192, MUTEX + 192 + 8 * MOST_THREADS
"""Byte offsets: of the mutex, of the conditions "there is work" and "all are done", of the threads, and of their ranges."""
RANGE = 64
STATE_BYTES = RANGES + RANGE * MOST_THREADS

OPEN = 1 << 15
INSIDE = OPEN - 1
"""The bits of the gate: a thread may come, and how many are inside. Those above are the number of the loop."""


def at(name: str, field: str) -> str:
    """The address of a field, as a line."""
    return f"%{name} = getelementptr i64, ptr %state, i64 {FIELDS.index(field)}"


def part(name: str, offset: int) -> str:
    """An address so many bytes from the state's start, as a line."""
    return f"%{name} = getelementptr i8, ptr %state, i64 {offset}"


def call(function: str, *parts: str) -> str:
    """A call of a function of the thread library on parts of the state, as lines."""
    offsets = {"mutex": MUTEX, "work": WORK, "done": DONE}
    name = f"{function}.{'.'.join(parts)}"
    lines = [at(f"{name}.at", function), f"%{name}.f = load ptr, ptr %{name}.at"]
    lines += [part(f"{name}.{p}", offsets[p]) for p in parts]
    given = ", ".join(f"ptr %{name}.{p}" for p in parts)
    lines.append(f"%{name}.r = call i32 %{name}.f({given})")
    return "\n  ".join(lines)
