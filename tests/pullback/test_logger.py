"""The logger ``pullback``: what is compiled, why, and how long it takes, in programs that have imported ``logging``."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import pullback as pb


def messages(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    assert {record.name for record in caplog.records} <= {"pullback"}
    return [record.getMessage() for record in caplog.records if record.levelname == level]


def test_each_compile_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    scale = {"factor": 2.0}

    def logged_loss(w: np.ndarray) -> float:
        return np.sum(np.sin(w) ** 2) * len(scale)

    slope = pb.grad(logged_loss)
    with caplog.at_level(logging.INFO, logger="pullback"):
        slope(np.ones(7))
        slope(np.ones(7))
        slope(np.ones((3, 3)))
        scale["other"] = 1.0
        slope(np.ones(7))
    starts = [text for text in messages(caplog, "INFO") if text.startswith("compiling")]
    ends = [text for text in messages(caplog, "INFO") if text.startswith("compiled")]
    assert starts[0] == "compiling grad(logged_loss)(w: f64[7]): first call"
    assert starts[1] == "compiling grad(logged_loss)(w: f64[3,3]): new signature: w is f64[3,3], was f64[7]"
    assert starts[2].startswith("compiling grad(logged_loss)(w: f64[7]): guard failed: ") and "scale" in starts[2]
    assert len(starts) == len(ends) == 3
    how = r"\d+ kernels?(, \d+ (compiled|from the cache folder|in memory))+|from the cache folder|the program of other sizes"
    assert all(re.fullmatch(rf"compiled grad\(logged_loss\) in \d+\.\d\d s: ({how})", text) for text in ends)


def test_each_stage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pullback"):
        pb.grad(lambda w: np.sum(np.cos(w) * 1.2345))(np.ones(3))
    stages = [text.partition(":")[0] for text in messages(caplog, "DEBUG")]
    assert stages[0] == "trace" and any("for cpu" in stage for stage in stages)


PROGRAM = "import numpy as np, pullback as pb; pb.jit(lambda x: np.exp(x))(np.ones(3))"


def output(program: str, level: str) -> str:
    environment = os.environ | {"PULLBACK_LOG": level}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == ""
    return done.stderr


@pytest.mark.long
def test_a_variable_writes_messages_to_standard_error() -> None:
    lines = output(PROGRAM, "info").splitlines()
    assert len(lines) == 2 and all(" pullback INFO: compil" in line for line in lines)
    assert "trace: " in output(PROGRAM, "debug")
    assert output(PROGRAM, "off") == ""
    assert "PULLBACK_LOG=loud: off, info or debug is expected" in output(PROGRAM, "loud")


def test_an_import_does_not_import_logging() -> None:
    program = "import sys, pullback; assert 'logging' not in sys.modules; print('imported')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "imported\n"
