"""What a CUDA device does to a process: faults, forks, ends, and what is said where CUDA is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.support.cuda.targets import needs_host
from tests.support.paths import ROOT


def run(text: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """A script over the stand-in. ``first`` runs before that is there."""
    head = """
        import sys, numpy as np, pullback as pb
        from tests import cuda_host
        from pullback.runtime.cuda.compile import compile as cuda_compile
        cuda_host.activate()
        cuda_compile.use(cuda_host.Compiler())
        f = pb.jit(lambda x: np.sin(x) * 2, device="cuda")
        x = np.arange(5.0)
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    script = textwrap.dedent(first) + textwrap.dedent(head) + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


@needs_host
def test_a_kernel_that_fails() -> None:
    done = run("""
        class Beyond:
            __cuda_array_interface__ = {"shape": (10**6,), "typestr": "<f8", "version": 3, "stream": None,
                                        "data": (pb.device_put(x).address, False)}
        def reader(x): return x * 2
        for call in (lambda: np.asarray(pb.jit(reader)(Beyond())), lambda: f(x), lambda: pb.device_put(x)):
            try: call()
            except pb.DeviceFault as error: print(error)
        print(pb.jit(np.sin)(x)[1])
    """)
    first, second, third, last = done.stdout.splitlines()
    assert "cuda:0: k0 of reader failed" in first and 'device="cpu" is not affected' in first
    assert first == second == third
    assert float(last) == np.sin(1)
    assert done.returncode == 0 and not done.stderr


@needs_host
def test_after_a_fork() -> None:
    done = run("""
        import os
        f(x)
        if not os.fork():
            try: f(x)
            except pb.DeviceError as error: print(error)
            print(pb.jit(np.sin)(x)[1])
            sys.exit()
        os.wait()
        print(f(x)[1])
    """)
    said, sine, twice = done.stdout.splitlines()
    assert "cuda:0 was used before this process was forked" in said and "spawn" in said
    assert float(sine) * 2 == pytest.approx(float(twice)) == 2 * np.sin(1)
    assert done.returncode == 0 and not done.stderr


@needs_host
def test_a_fork_before_cuda_is_used() -> None:
    done = run("sys.stdout.write(f'{f(x)[1]}\\n')\nif child: os.wait()", "import os, pullback\nchild = os.fork()")
    assert [float(line) for line in done.stdout.splitlines()] == [pytest.approx(2 * np.sin(1))] * 2
    assert done.returncode == 0 and not done.stderr


@needs_host
@pytest.mark.parametrize(
    "ending",
    ["pass", "raise ValueError('mine')", "sys.exit(3)", "import threading; threading.Thread(target=lambda: f(x)).start()"],
)
def test_the_process_ends(ending: str) -> None:
    done = run(f"held = pb.device_put(x); kept = f(held), f(x)\n{ending}")
    assert done.returncode == (1 if "raise" in ending else 3 if "exit" in ending else 0), done.stderr
    assert "PyCUDA" not in done.stderr and ("mine" in done.stderr or not done.stderr)


def alone(text: str) -> str:
    """What a script prints without the stand-in."""
    script = "import numpy as np, pullback as pb\n" + textwrap.dedent(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True, cwd=ROOT)
    return done.stdout


def test_nothing_of_cuda_is_imported_before_it_is_asked_for() -> None:
    assert (
        alone("""
        import sys
        pb.jit(np.sin)(np.ones(3)), pb.grad(lambda x: x * x)(2.0)
        print([name for name in sys.modules if "pycuda" in name or "cuda_device" in name or "cuda_run" in name])
    """)
        == "[]\n"
    )


@needs_host
def test_a_card_that_there_is_no_code_for() -> None:
    """The compiler is NVRTC, which does not know the architecture."""
    pytest.importorskip("nvidia.cu13", reason="needs nvidia-cuda-nvrtc")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    script = textwrap.dedent("""
        import numpy as np, pullback as pb
        from tests import cuda_host
        cuda_host.activate(arch=20)
        for call in (lambda: pb.jit(np.sin, device="cuda")(np.ones(3)), lambda: pb.device_put(np.ones(3)) + 1):
            try: call()
            except pb.DeviceError as error: print(error)
        print(pb.jit(np.sin)(np.ones(3))[0])
    """)
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    first, second, sine = done.stdout.splitlines()
    assert first == second and float(sine) == np.sin(1), done.stderr
    assert "cuda:0, stand-in 0 on the host, is of architecture sm_20, and NVRTC" in first and "makes no code for sm_20" in first
    assert 'install an NVRTC (or nvcc) of a CUDA that knows it, see `pullback doctor`, or use device="cpu"' in first


@needs_host
def test_a_stream_that_was_destroyed() -> None:
    done = run("""
        import pycuda.driver as cuda
        held = pb.device_put(x)
        with held.gpu:
            stream = cuda.Stream(); handle = stream.handle; del stream
        class Tensor:
            __cuda_array_interface__ = {**held.__cuda_array_interface__, "stream": handle}
        Tensor.__module__ = "library"
        try: f(Tensor())
        except pb.DeviceError as error: print(error, hex(handle))
        print(f(held)[1].item(), held.tolist())
    """)
    said, after = done.stdout.splitlines()
    assert "cuda:0: the stream 0x" in said and "it may have been destroyed, or be of another context" in said, done.stderr
    assert said.count(said.split()[-1]) == 2 and "synchronize, and pass a copy" in said
    assert after == f"{np.sin(1.0) * 2} [0.0, 1.0, 2.0, 3.0, 4.0]"


@needs_host
def test_no_memory() -> None:
    """The error names the buffer and its function; memory that is free was given back, and the next call works."""
    done = run("""
        g = pb.jit(lambda y: np.cumsum(np.cumsum(y) * 2) * 3, device="cuda")
        large = np.arange(100_000.0)
        wanted = g(large)
        pb.trim()
        with cuda_host.memory(0, cuda_host.counts()["bytes"] + 1_000_000):
            try: g(large)
            except pb.DeviceMemoryError as error: print(isinstance(error, MemoryError), error)
            print(f(x)[1])
        print(np.array_equal(g(large), wanted))
    """)
    said, small, again = done.stdout.splitlines()
    assert said.startswith("True no memory for ") and "f64[100000]" in said and "800,000 bytes" in said, said
    assert "lambda" in said and "what was free has been given back" in said
    assert float(small) == pytest.approx(2 * np.sin(1)) and again == "True"


def test_without_pycuda() -> None:
    said = alone("""
        import sys
        sys.modules["pycuda"] = None
        import importlib.util
        importlib.util.find_spec = lambda name, find=importlib.util.find_spec: None if name == "pycuda" else find(name)
        try: pb.jit(np.sin, device="cuda")(np.ones(3))
        except pb.DeviceError as error: print(error)
    """)
    assert "needs PyCUDA, which is not installed: pip install 'pullback[cuda]'" in said


def test_without_a_driver() -> None:
    said = alone("""
        import importlib.util, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "pycuda.driver":
                    raise ImportError("libcuda.so.1: cannot open shared object file")
                return importlib.util.spec_from_loader(name, None, is_package=True) if name == "pycuda" else None
        sys.meta_path.insert(0, Finder())
        try: pb.jit(np.sin, device="cuda")(np.ones(3))
        except pb.DeviceError as error: print(error)
    """)
    assert "needs NVIDIA's driver" in said and "libcuda.so.1" in said


@needs_host
def test_without_a_device() -> None:
    done = run("""
        cuda_host._driver().cuda_host_devices(0, 90, 0)
        try: f(x)
        except pb.DeviceError as error: print(error)
    """)
    assert "finds no CUDA device" in done.stdout, done.stderr
