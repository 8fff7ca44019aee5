"""The environment variables that pullback reads, each with what is allowed in it; anything else there is an error.

Whatever reads one calls ``read``. ``import pullback`` calls ``check``, and so does the first compile of a process, which may
have set them since: a word that is not known is nowhere taken for the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_THREADS = 256
MOST_BYTES = (1 << 62) - 1
CPU_LEVELS = ("native", "baseline", "avx2", "avx512")
CALL_PATHS = ("native", "fused", "plain", "auto")
CHOSEN = ("ours", "library", "static")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One variable. ``expected`` says what it may hold, for messages; ``allows`` whether a text is that."""

    name: str
    expected: str
    allows: Callable[[str], bool]

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """The text that the variable holds; empty where it is not set. Raises ValueError for another than is allowed."""
        text = (os.environ if environ is None else environ).get(self.name, "").strip()
        if text and not self.allows(text):
            raise ValueError(f"{self.name}={text}: {self.expected} is expected")
        return text


def one_of(name: str, *words: str) -> Setting:
    """A variable that holds one of some words."""
    return Setting(name=name, expected=f"{', '.join(words[:-1])} or {words[-1]}", allows=words.__contains__)


def number(name: str, what: str, least: int, most: int) -> Setting:
    """A variable that holds a whole number."""
    def allows(text: str) -> bool:
        return re.fullmatch("[0-9]{1,30}", text) is not None and least <= int(text) <= most

    return Setting(name=name, expected=f"a number of {what}, {least} to {most},", allows=allows)


def _is_choice(text: str) -> bool:
    words = [word.strip() for word in text.split(",")]
    return all(re.fullmatch(rf"([a-z0-9_]+ *= *)?({'|'.join(CHOSEN)})", word) for word in words if word)


def _are_folders(text: str) -> bool:
    try:
        return all(word.strip().lower() == "off" or Path(word.strip()).expanduser() for word in text.split(os.pathsep))
    except RuntimeError:  # a home folder that is not known
        return False


CACHE_DIR = Setting(
    name="PULLBACK_CACHE_DIR",
    expected=f"off, or folders with {os.pathsep} between them, where ~ is the home of a user that there is,",
    allows=_are_folders,
)
NUM_THREADS = number("PULLBACK_NUM_THREADS", "threads", 1, MOST_THREADS)
POOL_BYTES = number("PULLBACK_POOL_BYTES", "bytes", 0, MOST_BYTES)
CALL_PATH = one_of("PULLBACK_CALL_PATH", *CALL_PATHS)
CPU = one_of("PULLBACK_CPU", *CPU_LEVELS)
CHOICES = Setting(
    name="PULLBACK_CHOICES",
    expected=f"{', '.join(CHOSEN[:-1])} or {CHOSEN[-1]}, for all or as in gemm={CHOSEN[0]},",
    allows=_is_choice,
)
TRACEBACK = one_of("PULLBACK_TRACEBACK", "users", "full")
VERIFY = one_of("PULLBACK_VERIFY", "0", "1")

SETTINGS = (CACHE_DIR, NUM_THREADS, POOL_BYTES, CALL_PATH, CPU, CHOICES, TRACEBACK, VERIFY)


def check() -> None:
    """Raises ValueError for the first variable that holds what is not allowed in it."""
    for setting in SETTINGS:
        setting.read()


def is_verified() -> bool:
    """Whether the IR is verified after each pass."""
    return VERIFY.read() == "1"
