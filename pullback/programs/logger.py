"""The logger ``pullback`` of Python's ``logging``: what is compiled and how long it takes, at INFO."""

from __future__ import annotations

import sys
from typing import Any


def info(message: str, *args: Any) -> None:
    """Log a message at INFO; does nothing in programs that have not imported ``logging``, since they have no handlers."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("pullback").info(message, *args)
