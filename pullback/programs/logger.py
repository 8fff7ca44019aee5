"""The logger ``pullback`` of Python's ``logging``: each compile at INFO, each of its stages at DEBUG.

Programs that have not imported ``logging`` have no handlers, so ``import pullback`` does not import it, and nothing is logged in
them. ``PULLBACK_LOG=info`` or ``debug`` writes the messages to standard error in any program.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

from pullback.ir.core.environment import LOG
from pullback.runtime.process import counters

NAME = "pullback"
FORMAT = "%(asctime)s %(name)s %(levelname)s: %(message)s"
Level = Literal["info", "debug"]
LEVELS: dict[Level, int] = {"info": 20, "debug": 10}
"""The levels as numbers of ``logging``, which is not imported to compare them."""


def configure() -> None:
    """Write messages to standard error from the level on that ``PULLBACK_LOG`` names, if it names one."""
    level = LOG.read()
    if level in LEVELS:
        import logging

        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        logger = logging.getLogger(NAME)
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False
    counters.on_stage = _log_stage


def is_on(level: Level) -> bool:
    """Return whether messages of a level reach a handler."""
    logging = sys.modules.get("logging")
    return logging is not None and bool(logging.getLogger(NAME).isEnabledFor(LEVELS[level]))


def log(level: Level, message: str, *args: Any) -> None:
    """Log a message, if the program has imported ``logging``."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger(NAME).log(LEVELS[level], message, *args)


def _log_stage(stage: str, seconds: float) -> None:
    if is_on("debug"):
        log("debug", "%s: %.4f s", stage, seconds)
