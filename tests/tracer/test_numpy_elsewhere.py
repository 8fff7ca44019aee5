"""NumPy and SciPy in a folder of any name, as ``pip install --target`` puts them, are libraries."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.paths import ROOT

PROGRAM = """if True:
    import numpy as np, scipy.special
    assert not {"site-packages", "dist-packages"} & {*np.__file__.split("/"), *scipy.special.__file__.split("/")}
    import pullback as pb

    def f(a, c):
        y = np.zeros(2)
        if c > 0:
            y = np.float64(c)
        return y + scipy.special.expit(a) + np.linalg.norm(a)

    for c in (1.0, -1.0):
        a = np.array([0.5, -2.0])
        assert np.allclose(pb.jit(f)(a, c), f(a, c))
    print(pb.grad(lambda a, c: f(a, c).sum())(a, 1.0))
"""


def test_numpy_in_another_folder(tmp_path: Path) -> None:
    packages = Path(str(find_spec("numpy").origin)).parent.parent  # type: ignore[union-attr]
    libraries, program = tmp_path / "libraries", tmp_path / "program.py"
    libraries.mkdir()
    for item in packages.iterdir():
        if item.name.startswith(("numpy", "scipy", "llvmlite", "ml_dtypes")):
            (libraries / item.name).symlink_to(item)
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(libraries), str(ROOT)])}
    done = subprocess.run([sys.executable, "-S", str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")
