"""Texts that stand for traced values where a function shows them while it is traced, as ``print(x)`` does."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from pullback.tracer.user_code.errors import TraceError

_PATTERN = re.compile(r"\btraced (Python (bool|int|float|complex)|(bool|bf16|[iufc]\d+)\[[^\]]*\])")
REFUSED = "a text of a traced value is used or returned; return the value, and make the text after the call"
"""The text of the error for any other use than to show it."""


class Description(str):
    """The text that stands for a traced value: it can be shown, but its characters are not those of the value's text.

    Methods that depend on its characters raise TraceError.
    """

    __slots__ = ()

    def _refuse(self, *_: Any) -> NoReturn:
        raise TraceError(REFUSED)

    __len__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __contains__ = __getitem__ = __iter__ = _refuse


def shows_traced(text: str) -> bool:
    """Return whether a text has a part that stands for a traced value."""
    return _PATTERN.search(text) is not None
