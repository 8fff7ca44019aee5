"""The environment variables that pullback reads, each with the values that it allows; any other value is an error.

Every reader calls ``read``. ``import pullback`` calls ``check``, and so does the first compile of a process, since the program
may have set variables after the import. An unknown value never means the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pullback.ir.core.records import dataclass

MOST_THREADS = 256
"""Largest number of worker threads that may be set."""
MOST_BYTES = (1 << 62) - 1
"""Largest byte count that may be set."""
CPU_LEVELS = ("native", "baseline", "avx2", "avx512")
CALL_PATHS = ("native", "fused", "plain", "auto")
CHOSEN = ("ours", "library", "static")
"""Words of PULLBACK_CHOICES: the own kernel, the vendor library, or the static choice without timing."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One variable. ``expected`` describes the allowed values in error messages; ``allows`` returns whether a text is one."""

    name: str
    expected: str
    allows: Callable[[str], bool]

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the text of the variable; empty if it is unset. Raises ValueError for a value that is not allowed."""
        text = (os.environ if environ is None else environ).get(self.name, "").strip()
        if text and not self.allows(text):
            raise ValueError(f"{self.name}={text}: {self.expected} is expected")
        return text


def one_of(name: str, *words: str) -> Setting:
    """Return a setting that allows the given words."""
    return Setting(name=name, expected=f"{', '.join(words[:-1])} or {words[-1]}", allows=words.__contains__)


def integer_setting(name: str, unit: str, least: int, most: int) -> Setting:
    """Return a setting that allows an integer from ``least`` to ``most``, a count of ``unit``."""

    def allows(text: str) -> bool:
        return re.fullmatch("[0-9]{1,30}", text) is not None and least <= int(text) <= most

    return Setting(name=name, expected=f"a number of {unit}, {least} to {most},", allows=allows)


def _is_choice(text: str) -> bool:
    words = [word.strip() for word in text.split(",")]
    return all(re.fullmatch(rf"([a-z0-9_]+ *= *)?({'|'.join(CHOSEN)})", word) for word in words if word)


def _are_folders(text: str) -> bool:
    try:
        return all(word.strip().lower() == "off" or Path(word.strip()).expanduser() for word in text.split(os.pathsep))
    except RuntimeError:  # the home folder is unknown
        return False


CACHE_DIR = Setting(
    name="PULLBACK_CACHE_DIR",
    expected=f"off, or folders with {os.pathsep} between them, where ~ is the home of a user that there is,",
    allows=_are_folders,
)
NUM_THREADS = integer_setting("PULLBACK_NUM_THREADS", "threads", 1, MOST_THREADS)
POOL_BYTES = integer_setting("PULLBACK_POOL_BYTES", "bytes", 0, MOST_BYTES)
CALL_PATH = one_of("PULLBACK_CALL_PATH", *CALL_PATHS)
CPU = one_of("PULLBACK_CPU", *CPU_LEVELS)
CHOICES = Setting(
    name="PULLBACK_CHOICES",
    expected=f"{', '.join(CHOSEN[:-1])} or {CHOSEN[-1]}, for all or as in gemm={CHOSEN[0]},",
    allows=_is_choice,
)
TRACEBACK = one_of("PULLBACK_TRACEBACK", "users", "full")
DISABLE_JIT = one_of("PULLBACK_DISABLE_JIT", "0", "1")
VERIFY = one_of("PULLBACK_VERIFY", "0", "1")
STRICT = one_of("PULLBACK_STRICT", "0", "1")
LOG = one_of("PULLBACK_LOG", "off", "info", "debug")

SETTINGS = (CACHE_DIR, NUM_THREADS, POOL_BYTES, CALL_PATH, CPU, CHOICES, DISABLE_JIT, TRACEBACK, VERIFY, STRICT, LOG)


def check() -> None:
    """Raise ValueError for the first variable that holds a value that is not allowed."""
    for setting in SETTINGS:
        setting.read()


def is_jit_disabled() -> bool:
    """Return whether calls of compiled functions run plain Python."""
    return DISABLE_JIT.read() == "1"


def is_verified() -> bool:
    """Return whether the IR is verified after each pass."""
    return VERIFY.read() == "1"


def is_strict() -> bool:
    """Return whether errors of this package in a trace are raised where the function could be traced in another way."""
    return STRICT.read() == "1"
