"""Checks of LLVM's input and output: text that would make LLVM abort, and object code that calls outside, are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pullback.runtime.compile.machine import Host
from pullback.runtime.compile.object_files import object_symbols

# Functions that LLVM itself may call in generated code, by operating system; a kernel may need no other outside symbol.
_RUNTIME_SYMBOLS = {"": {"memcpy", "memmove", "memset"}, "darwin": {"bzero"}, "windows": {"__chkstk"}}
_COMMENT = re.compile(r";[^\n]*")
_REFUSED = re.compile(
    r"\bmodule\s+asm\b|\basm\s+(?:sideeffect|alignstack|inteldialect|unwind|\")|\bgc\s+\"|\btarget\s+(?:triple|datalayout)\b"
    r"|\bthread_local\b|\bvscale\b|\b(?:ppc_fp128|x86_fp80|fp128)\b|\bx86_amx\b|\bifunc\b|\bpresplitcoroutine\b"
    r"|\"target-(?:cpu|features)\"|\"tune-cpu\""
)
# The pattern cannot match without one of these words, and searching for them is much faster.
_SUSPECT = ("asm", "gc", "target", "thread_local", "vscale", "fp128", "fp80", "amx", "ifunc", "presplit", "tune-cpu")
_INTRINSIC = re.compile(r"@\"?llvm\.([A-Za-z0-9_.]+)")
# The intrinsics that every target lowers for every type; others may abort in instruction selection.
_INTRINSICS = re.compile(
    r"(?:abs|assume|bitreverse|bswap|ceil|copysign|ctlz|ctpop|cttz|expect|fabs|floor|fma|fmuladd|fptosi\.sat|fptoui\.sat"
    r"|fshl|fshr|is\.fpclass|lifetime\.(?:start|end)|masked\.(?:load|store|gather|scatter|compressstore|expandload)"
    r"|maximum|maxnum|memcpy|memmove|memset|minimum|minnum|nearbyint|prefetch|readsteadycounter|rint|round|roundeven"
    r"|[su](?:add|sub|mul)\.with\.overflow|[su](?:add|sub|shl)\.sat|[su](?:max|min)|sqrt|trunc"
    r"|vector\.reduce\.[a-z]+|vector\.(?:interleave|deinterleave)2|get\.active\.lane\.mask)(?:\.[A-Za-z0-9_.]+)?"
)
# The further intrinsics of x86 processors, by the vector width in bytes that they require.
_X86_INTRINSICS_BY_WIDTH = {
    16: r"x86\.(?:rdtsc|sse2\.(?:pause|cvttsd2si(?:64)?)|sse\.(?:st|ld)mxcsr)",
    32: r"x86\.avx2\.permps",
    64: r"x86\.avx512\.(?:permvar\.[ds]f|"
    r"(?:vpermi2var|vfmadd|fpclass|r(?:cp|sqrt)14|mask\.(?:getexp|getmant|scalef))\.p[ds])\.512",
}
_LOCATION = re.compile(r"<string>:(\d+):\d+|kernels\.cu\((\d+)\)")


class CompileError(Exception):
    """Raised if the toolchain did not accept a text. `text` is all of it, `reason` the toolchain's message."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason.strip()

    def __str__(self) -> str:
        lines = self.text.splitlines()
        location = _LOCATION.search(self.reason)
        at = int(location[1] or location[2]) if location else None
        shown = range(len(lines)) if at is None else range(max(0, at - 10), min(len(lines), at + 5))
        body = "\n".join(f"{'->' if n + 1 == at else '  '} {n + 1:5} {lines[n]}" for n in shown)
        return f"{self.reason}\n\n{body}" if body else self.reason


def refuse(text: str, host: Host) -> None:
    """Raise CompileError for text on which LLVM would abort, and text that would override the host's description."""
    if "\0" in text:
        raise CompileError(text.replace("\0", "?"), "the text holds a zero byte")
    code = _COMMENT.sub("", text)
    refused = _REFUSED.search(code) if any(word in code for word in _SUSPECT) else None
    if refused is not None:
        raise CompileError(text, f"{refused[0]!r} is not accepted in a kernel")
    for intrinsic in sorted(set(_INTRINSIC.findall(code))):
        widest = host.vector_bytes if host.triple.startswith("x86_64") else 0
        of_width = (pattern for width, pattern in _X86_INTRINSICS_BY_WIDTH.items() if width <= widest)
        is_known = _INTRINSICS.fullmatch(intrinsic) or any(re.fullmatch(pattern, intrinsic) for pattern in of_width)
        if not is_known:
            raise CompileError(text, f"intrinsic llvm.{intrinsic} is not accepted in a kernel")


def runtime_symbols(triple: str) -> set[str]:
    """Return the outside symbols that code for a machine may need: functions of the C library and the system that LLVM calls
    by itself."""
    system = "darwin" if "-apple-" in triple else "windows" if "-windows-" in triple else ""
    return _RUNTIME_SYMBOLS[""] | _RUNTIME_SYMBOLS[system]


def check_symbols(text: str, payload: bytes, symbols: Sequence[str], triple: str) -> None:
    """Raise CompileError if the code needs a symbol from outside, for which the linker would search this process, or defines
    none of ``symbols``."""
    symbol_sets = object_symbols(payload)
    if symbol_sets is None:
        return
    defined, undefined = symbol_sets
    outside = sorted(undefined - runtime_symbols(triple))
    if outside:
        reason = f"undefined symbol {', '.join(outside)}: code may call nothing that is not passed to it"
        raise CompileError(text, reason)
    absent = [symbol for symbol in symbols if symbol not in defined]
    if absent:
        raise CompileError(text, f"the text defines no {', '.join(absent)}")
