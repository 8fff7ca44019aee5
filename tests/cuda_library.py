"""Emitted CUDA C, run on the host: compiled with g++ behind cuda_library.h, in place of a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cuda_program import Machine, run_program, text_of

from pullback.codegen.cuda import Emitted
from pullback.codegen.cuda_launch import Launch
from pullback.ir import Function

HEADER = Path(__file__).parent / "cuda_library.h"
COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c++", "-include", str(HEADER))
FOLDER = tempfile.TemporaryDirectory(prefix="pullback-cuda-")


class Host(Machine):
    """The kernels as a library of the host."""

    def __init__(self, kernels: Sequence[Emitted]) -> None:
        assert COMPILER is not None
        folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
        source, library = folder / "kernels.cu", folder / "kernels.so"
        text = text_of(kernels, lambda launch: f"HOST_EXPORT({launch.name})")
        source.write_text(text.replace("extern __shared__ long long pb_shared[];", ""))
        done = subprocess.run([COMPILER, *FLAGS, "-o", str(library), str(source)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.library = ctypes.CDLL(str(library))

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def start(self, launch: Launch, blocks: int, threads: int, shared: int, values: Sequence[Any]) -> None:
        held = [np.asarray(v) for v in values]
        table = (ctypes.c_void_p * max(1, len(held)))(*(v.ctypes.data for v in held))
        together = self.library[f"host_{launch.name}"](blocks, threads, table)
        assert together, f"{launch.name}: only some threads of a block reach a barrier"

    def finish(self) -> None:
        pass


def run_on_host(function: Function, arguments: Sequence[Any], layouts: Sequence[str] = ()) -> tuple[Any, ...]:
    """The results of a func through CUDA C on the host."""
    return run_program(Host, function, arguments, layouts)
