"""The logger ``pullback`` says what is compiled, in programs that log; an import of pullback does not import ``logging``."""

import logging
import re
import subprocess
import sys

import numpy as np
import pytest

import pullback as pb


def test_what_is_compiled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def logged_loss(w: np.ndarray) -> float:
        return float(np.e) * np.sum(np.sin(w) ** 2)

    with caplog.at_level(logging.INFO, logger="pullback"):
        compiled = pb.jit(logged_loss)
        compiled(np.ones(7))
        first = [record.getMessage() for record in caplog.records if "logged_loss" in record.getMessage()]
        compiled(np.ones(7))
        compiled(np.ones(9))
    again = [record.getMessage() for record in caplog.records if "logged_loss" in record.getMessage()]
    assert again == first
    text = "\n".join(first)
    is_new = re.fullmatch(r"compiling logged_loss for cpu: \d+ operations\ncompiled logged_loss for cpu in \d+\.\d\d s", text)
    assert is_new or text == "logged_loss for cpu is in the cache folder"
    assert all(record.levelno == logging.INFO and record.name == "pullback" for record in caplog.records)


def test_an_import_does_not_import_logging() -> None:
    program = "import sys, pullback; assert 'logging' not in sys.modules; print('imported')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "imported\n"
