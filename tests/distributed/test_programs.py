"""Programs of users in processes of their own: scripts without a guard of ``__main__``, and workers of another version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from tests.distributed.losses import arguments, squares
from tests.distributed.test_workers import OVER, cluster_of
from tests.support.paths import ROOT

SCRIPT = """
import numpy as np
import pullback as pb

def loss(w, x):
    return np.mean(np.tanh(x @ w) ** 2)

x, w = np.arange(60.0).reshape(20, 3) / 60, np.ones(3)
fit = pb.distribute(pb.value_and_grad(loss), over={"x": 0}, blocks=4, client=CLIENT)
value, slope = fit.bind(x=x)(w)
assert np.allclose(value, loss(w, x), rtol=1e-12)
print(value.hex(), slope.tobytes().hex())
"""


def output_of(tmp_path: Path, client: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(SCRIPT.replace("CLIENT", client))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_script_without_a_guard_of_main(tmp_path: Path) -> None:
    """In this process and on the local cluster: no process is started, which would run the script again."""
    assert output_of(tmp_path, "None") == output_of(tmp_path, "'local'")


def test_workers_of_another_version(tmp_path: Path) -> None:
    """They are of another kind, compile kernels of their own, and give the same bits, so that there is no warning."""
    (tmp_path / "sitecustomize.py").write_text("import pullback.version\npullback.version.__version__ = '0.0.1'\n")
    folders = [{"PULLBACK_CACHE_DIR": str(tmp_path / name)} for name in ("here", "other")]
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    w, x, y = arguments(300)
    with cluster_of(folders[0], folders[1] | {"PYTHONPATH": path}) as client:
        versions = client.run(lambda: __import__("pullback").version.__version__)
        assert sorted(versions.values()) == sorted(["0.0.1", pb.__version__])
        fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=6, client=client)
        value, slope = fit(w, x, y)
        counts = client.run(lambda: __import__("pullback").cache_info().compiles)
    alone = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=6)(w, x, y)
    assert value == alone[0] and np.array_equal(slope, alone[1])
    assert all(counts.values())


def test_data_that_cannot_be_an_argument() -> None:
    with open(os.devnull) as file, pytest.raises(TypeError, match="over names x, which"):
        pb.distribute(squares, over=OVER)(np.ones(3), file, np.ones(3))
