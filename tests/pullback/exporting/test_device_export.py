"""Functions exported for CUDA devices, and loaded: over the stand-in, whose compiler makes images for an architecture."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.exporting.cuda import DIGEST
from pullback.exporting.file_format import MAGIC
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.program.program_bytes import SIZE
from tests import cuda_host
from tests.support.cuda.driver_stand_in import device, order
from tests.support.paths import ROOT

__all__ = ["device", "order"]

rng = np.random.default_rng(0)
SCALE = np.array([0.5, 1.0, 2.0])


def loss(w: Any, x: Any, y: Any) -> Any:
    """The mean logistic loss."""
    z = x @ (w * SCALE)
    return np.mean(np.logaddexp(0, z) - y * z)


def data(n: int) -> tuple[Any, ...]:
    return rng.normal(size=3), rng.normal(size=(n, 3)), rng.integers(0, 2, n).astype(float)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    built = pb.export(
        pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "model", device="cuda", architectures=["sm_90"]
    )
    assert built.file == tmp_path / "model.cuda" and built.architectures == ("sm_90",)
    assert "runs on sm_90" in str(built) and "serves n from" in str(built)
    return tmp_path / "model.cuda"


@pytest.mark.parametrize("where", ["NumPy's", "there", "on the second"])
def test_a_gradient_and_back(where: str, model: Path) -> None:
    f = pb.load(model, trust=True, device="cuda:1" if where == "on the second" else "cuda")
    assert (f.__name__, f.__doc__) == ("value_and_grad(loss)", "The mean logistic loss.")
    for n in (5, 17, 300):
        w, x, y = data(n)
        arguments = (w, x, y) if where == "NumPy's" else pb.device_put((w, x, y), f.device)
        value, gradient = f(*arguments)
        expected = pb.value_and_grad(loss)(w, x, y)
        np.testing.assert_allclose(np.asarray(value), expected[0], rtol=1e-13)
        np.testing.assert_allclose(np.asarray(gradient), expected[1], rtol=1e-12)
        if where == "NumPy's":
            assert isinstance(value, np.float64) and isinstance(gradient, np.ndarray)
        else:
            assert gradient.device == f.device == ("cuda:1" if where == "on the second" else "cuda:0")
    f(w=w, x=x, y=y)


def test_nothing_of_ours_compiles_where_it_runs(model: Path, tmp_path: Path) -> None:
    """In a process without a compiler, a cache or the function's source."""
    script = textwrap.dedent(f"""
        import numpy as np, pullback as pb
        from tests import cuda_host
        cuda_host.activate()
        from pullback.runtime.cuda.compile import compile as cuda_compile
        def refuse(*given): raise AssertionError("something is compiled")
        cuda_compile.installed_compiler = cuda_compile.load = refuse
        f = pb.load({str(model)!r}, trust=True)
        print(repr(f), f(np.ones(3), np.ones((4, 3)), np.ones(4))[0])
    """)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PULLBACK_CACHE_DIR": "off"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert "model.cuda, on cuda:0>" in done.stdout, done.stderr
    assert float(done.stdout.split()[-1]) == pytest.approx(float(loss(np.ones(3), np.ones((4, 3)), np.ones(4))))


def test_containers_loops_and_what_is_returned_whole(tmp_path: Path) -> None:
    def f(p: Any, k: Any) -> Any:
        n = len(p["x"])
        y = pb.fori_loop(0, 3, lambda i, y: np.cumsum(y) / n + np.arange(n), p["x"])
        return {"y": y, "same": p["x"], "twice": (y, k * 2.0), "eye": np.eye(n) @ y}

    pb.export(f, {"x": "f64[n]"}, 1.5, path=tmp_path / "f", device="cuda", architectures=["sm_90"])
    loaded = pb.load(tmp_path / "f.cuda", trust=True)
    for n in (4, 33):
        x = rng.normal(size=n)
        for arguments in (x, pb.device_put(x)):
            result, wanted = loaded({"x": arguments}, 2.5), pb.jit(f)({"x": x}, 2.5)
            assert list(result) == list(wanted)
            for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(wanted), strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12, atol=1e-12)


def test_a_check_has_its_line(tmp_path: Path) -> None:
    pb.export(lambda x, k: x[k], "f64[n]", 1, path=tmp_path / "f", device="cuda", architectures=["sm_90"])
    f = pb.load(tmp_path / "f.cuda", trust=True)
    assert float(f(np.arange(5.0), 3)) == 3
    with pytest.raises(IndexError, match="out of bounds for axis 0") as caught:
        f(np.arange(5.0), 9)
    assert any("test_device_export.py:" in note for note in caught.value.__notes__)
    assert float(f(np.arange(5.0), 2)) == 2


def test_what_is_not_taken(model: Path) -> None:
    f = pb.load(model, trust=True)
    w, x, y = data(7)
    with pytest.raises(ValueError, match=r"y has shape \(3,\): \(7,\) is expected with n=7"):
        f(w, x, y[:3])
    with pytest.raises(TypeError, match=r"w is float32\[3\] on cuda:0: float64\[3\] is expected"):
        f(pb.device_put(w.astype("f4")), x, y)
    with pytest.raises(pb.DeviceError, match=r"is on cuda:1, and value_and_grad.* runs on cuda:0"):
        f(pb.device_put(w, "cuda:1"), x, y)
    np.testing.assert_allclose(f(w, x, y)[0], loss(w, x, y))


def test_files(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trust=True"):
        pb.load(model)
    content = bytearray(model.read_bytes())
    content[-5] ^= 1
    (tmp_path / "damaged.cuda").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged: its checksum is another"):
        pb.load(tmp_path / "damaged.cuda", trust=True)
    (tmp_path / "cut.cuda").write_bytes(model.read_bytes()[:200])
    with pytest.raises(ValueError, match="is damaged"):
        pb.load(tmp_path / "cut.cuda", trust=True)


def test_a_file_with_ir_of_format_version_1(model: Path) -> None:
    """Files of version 1 do not say it; they are refused before anything of them is parsed."""
    content = model.read_bytes()
    body = content[len(MAGIC) + DIGEST :]
    (size,) = SIZE.unpack_from(body)
    about, sections = json.loads(body[SIZE.size : SIZE.size + size]), body[SIZE.size + size :]
    stored = sections[: about["sections"][0]]
    (length,) = SIZE.unpack_from(stored)
    data = json.loads(stored[SIZE.size : SIZE.size + length])
    assert data.pop("ir") == 2
    text = json.dumps(data).encode()
    old = SIZE.pack(len(text)) + text + stored[SIZE.size + length :]
    about["sections"][0] = len(old)
    head = json.dumps(about).encode()
    body = SIZE.pack(len(head)) + head + old + sections[len(stored) :]
    model.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    says = r"its IR has format version 1, this version reads 2; it was made by .*, export it again$"
    with pytest.raises(ValueError, match=says):
        pb.load(model, trust=True)


def test_an_architecture_that_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    class Compiler(cuda_host.Compiler):
        def cubin(self, text: str, arch: str, options: Any) -> bytes:
            built.append(arch)
            return super().cubin(text, "sm_90", options)

    before = cuda_compile.use(Compiler())
    try:
        for name, archs in {"old": ["sm_75", "sm_80"], "several": ["sm_80", "sm_90"], "new": ["sm_91"]}.items():
            pb.export(lambda x: x * 2, "f64[n]", path=tmp_path / name, device="cuda", architectures=archs)
    finally:
        cuda_compile.use(before)
    assert set(built) >= {"sm_75", "sm_80", "sm_91"}
    np.testing.assert_array_equal(pb.load(tmp_path / "several.cuda", trust=True)(np.ones(3)), [2, 2, 2])
    for name, archs in {"old": "sm_75, sm_80", "new": "sm_91"}.items():
        with pytest.raises(pb.DeviceError, match=rf"exported for {archs}, and cuda:0, .*, is sm_90: .*\[\.\.\., 'sm_90'\]"):
            pb.load(tmp_path / f"{name}.cuda", trust=True)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    there: Any = {"path": tmp_path / "f", "device": "cuda", "architectures": ["sm_90"]}
    with pytest.raises(ValueError, match=r"'hopper' is none; they are called as 'sm_80'"):
        pb.export(np.sin, "f64[n]", path=tmp_path / "f", device="cuda", architectures=["hopper"])
    with pytest.raises(ValueError, match="goes with device='cuda'"):
        pb.export(np.sin, "f64[n]", path=tmp_path / "f", architectures=["sm_90"])
    with pytest.raises(ValueError, match='a device is "cpu", "cuda" or "cuda:N"'):
        pb.export(np.sin, "f64[n]", path=tmp_path / "f", device="gpu")
    with pytest.raises(pb.ExportError, match=r"runs a function, which an object without Python cannot"):
        pb.export(lambda x: pb.callback(lambda y: y, pb.ShapeDtypeStruct((3,), float), x), "f64[3]", **there)
    with pytest.raises(ValueError, match="was not exported for a device"):
        pb.load(tmp_path / "f.so", trust=True, device="cuda")


def test_without_architectures_it_is_for_the_device(tmp_path: Path, order: None) -> None:
    built = pb.export(lambda x: np.sum(np.sort(x)[::2]), "f32[n]", path=tmp_path / "f", device="cuda")
    assert built.architectures == ("sm_90",)
    x = rng.normal(size=100).astype("f4")
    np.testing.assert_allclose(pb.load(built.file, trust=True)(x), np.sum(np.sort(x)[::2]), rtol=1e-5)
