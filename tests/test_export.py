"""``pb.export`` and ``pb.load``: object files that C calls without Python, and the way back."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.codegen import cpuid
from pullback.codegen.interface import FIRST_CHECK
from pullback.runtime import exported, linking, product_choices
from pullback.runtime.accepted import runtime_symbols
from pullback.runtime.objects import object_symbols
from pullback.tree import leaves

Array = np.ndarray[Any, Any]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_linker = pytest.mark.skipif(linking.find_linker() is None, reason="no linker is on this machine")
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler is on this machine")

RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(size=(3, 4))
LARGE = RNG.normal(size=30_000)
SHIFT = 2.5


class Pair(NamedTuple):
    first: Any
    second: Any


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape)


def loss(w: Array, x: Array, y: Array) -> Any:
    """The mean logistic loss.

    w: weights of */ columns
    """
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


def network(p: dict[str, Array], x: Array) -> Any:
    return np.tanh(x @ p["w"] + p["b"]).sum()


def root(x: Any) -> Any:
    def body(c: Any) -> Any:
        y = c[0] - (c[0] ** 2 - x) / (2 * c[0])
        return y, abs(y * y - x)

    return pb.while_loop(lambda c: c[1] > 1e-10, body, (x, 1.0))[0]


def recurrent(a: Array, xs: Array) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(a * h + x)
        return h, h * 2

    return pb.scan(step, 0.0 * a, xs)


def saving(x: Array) -> Any:
    return pb.while_loop(lambda c: c[1] < 5.0, lambda c: (c[0] * 1.1 + x, c[1] + 1.0), (x, 0.0))[0].sum()


@pytest.fixture(autouse=True)
def our_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Functions do their matrix products themselves, as exports of them do."""
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=ours")
    product_choices.forget()
    yield
    product_choices.forget()


def same(found: Any, expected: Any) -> None:
    """Equal to the bit, of the same types."""
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert type(a) is type(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


Case = tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "gradient": (
        pb.value_and_grad(loss), ("f64[k]", "f64[n,k]", "f64[n]"),
        [(normal(3), normal(1000, 3), normal(1000)), (normal(1), normal(1, 1), normal(1)), (normal(2), normal(0, 2), normal(0))],
    ),
    "containers": (
        pb.value_and_grad(network), ({"w": "f64[k,m]", "b": "f64[m]"}, "f64[n,k]"),
        [({"w": normal(3, 4), "b": normal(4)}, normal(6, 3)), ({"w": normal(64, 80), "b": normal(80)}, normal(300, 64))],
    ),
    "while": (root, ("f64[]",), [(np.float64(2.0),), (np.float64(9.0),)]),
    "while gradient": (pb.grad(root), ("f64[]",), [(np.float64(2.0),)]),
    "saved by a while": (pb.value_and_grad(saving), ("f64[n]",), [(normal(4),), (normal(2000),), (normal(0),)]),
    "scan": (
        recurrent, ("f64[d]", "f64[t,d]"),
        [(normal(3), normal(10, 3)), (normal(40), normal(100, 40)), (normal(3), normal(0, 3))],
    ),
    "scan gradient": (
        pb.grad(lambda a, xs: recurrent(a, xs)[1].sum()), ("f64[d]", "f64[t,d]"), [(normal(3), normal(9, 3))],
    ),
    "outside": (lambda x: x @ WEIGHTS + SHIFT, ("f64[n,3]",), [(normal(5, 3),)]),
    "large outside": (lambda x: (x * LARGE).sum() + x[0], ("f64[30000]",), [(normal(30_000),)]),
    "threads": (lambda x: (np.sin(x).sum(), np.cos(x)), ("f64[n]",), [(normal(500_000),), (normal(10),)]),
    "solve": (
        pb.value_and_grad(lambda a, b: np.linalg.solve(a, b).sum()), ("f64[n,n]", "f64[n]"),
        [(normal(5, 5), normal(5)), (normal(60, 60), normal(60))],
    ),
    "product f32": (
        lambda a, b: a @ b, ("f32[n,k]", "f32[k,m]"), [(normal(200, 300).astype("f4"), normal(300, 90).astype("f4"))],
    ),
    "sort": (np.sort, ("f64[n]",), [(normal(10),), (normal(5000),)]),
    "ufunc": (lambda x: scipy.special.jv(1.5, np.abs(x)), ("f64[n]",), [(normal(10),)]),
    "complex": (lambda x: (x * 1j * x.conj(), np.abs(x)), ("c128[n]",), [(normal(4) + 1j * normal(4),)]),
    "complex scalar": (lambda x, z: x * z, ("f64[n]", "c128[]"), [(normal(4), np.complex128(1 + 2j))]),
    "bool": (lambda x: (x > 0, np.where(x > 0, x, 1)), ("f64[n]",), [(normal(4),)]),
    "results in a dict": (lambda x: {"a": x + 1, "b": (x.sum(), [x])}, ("f64[n]",), [(normal(4),)]),
    "results twice": (lambda x, y: (x, y, x + y, x + y), ("f64[n]", "f64[n]"), [(normal(4), normal(4))]),
    "nothing to compute": (lambda x: (x, x), ("f64[n]",), [(normal(4),)]),
    "numbers": (lambda x, rate, k: x * rate + k, ("f32[n]", 0.5, 3), [(normal(4).astype("f4"), 0.25, -7)]),
    "static": (lambda x, mode: x * 2 if mode == "a" else x, ("f64[n]", "a"), [(normal(4), "a")]),
    "namedtuple": (
        lambda p: Pair(p.first + p.second, p.first.mean()), (Pair("f64[n]", "f64[n]"),), [(Pair(normal(4), normal(4)),)],
    ),
    "ramps": (
        lambda x: x * np.arange(len(x)) + np.arange(len(x), dtype="f4") * 0.1, ("f64[n]",),
        [(normal(4),), (normal(9),), (normal(5000),)],
    ),
    "a diagonal": (np.linalg.inv, ("f64[n,n]",), [(normal(4, 4),), (normal(1, 1),), (normal(90, 90),), (normal(300, 300),)]),
    "other diagonals": (
        lambda x: x @ np.eye(len(x), len(x) + 1, k=1) + np.eye(len(x) + 1)[0], ("f32[n]",),
        [(normal(4).astype("f4"),), (normal(1000).astype("f4"),)],
    ),
    "zeros": (lambda x: np.zeros(len(x)) + x.mean(), ("f64[n]",), [(normal(4),), (normal(9),), (normal(1000),)]),
    "half": (lambda x: x[: len(x) // 2].sum() + x.std(ddof=1), ("f64[n]",), [(normal(14),), (normal(9),)]),
    "root of a size": (lambda x: x.sum() / np.sqrt(len(x)), ("f64[n]",), [(normal(14),), (normal(16),), (normal(1),)]),
    "pairs": (lambda x, y: np.exp(-((x[:, None] - y[None]) ** 2)).sum(0), ("f64[n]", "f64[m]"), [(normal(40), normal(30))]),
    "stencil": (lambda u: np.roll(u, 1, 0) + np.roll(u, -1, 1) - 4 * u, ("f64[n,m]",), [(normal(40, 50),)]),
    "hessian": (pb.hessian(lambda w, x: (np.tanh(x @ w) ** 2).mean()), ("f64[k]", "f64[n,k]"), [(normal(3), normal(7, 3))]),
    "branch": (lambda x: pb.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x), ("f64[n]",), [(normal(3),), (-normal(4),)]),
    "f16": (lambda x, s: x * s, ("f16[n]", "f16[]"), [(normal(4).astype("f2"), np.float16(1.5))]),
}  # fmt: skip


@needs_linker
@pytest.mark.parametrize("name", CASES)
def test_a_library_comes_back_as_the_function(name: str, tmp_path: Path) -> None:
    function, specs, calls = CASES[name]
    made = pb.export(function, *specs, path=tmp_path / "model")
    assert made.library is not None
    loaded = pb.load(made.library, trust=True)
    for call in calls:
        same(loaded(*call), pb.jit(function)(*call))


@pytest.mark.parametrize("name", ["gradient", "saved by a while", "solve"])
def test_an_object_needs_little_from_outside(name: str, tmp_path: Path) -> None:
    function, specs, _ = CASES[name]
    made = pb.export(function, *specs, path=tmp_path / "model")
    found = object_symbols(made.object.read_bytes())
    assert found is not None
    defined, undefined = found
    assert undefined <= {"realloc", "free"} | runtime_symbols("x86_64-unknown-linux-gnu")
    names = {"model", "model_call", "model_init", "model_error", "model_result_shape", "model_manifest", "pullback_exported"}
    assert defined == names


# C

PROGRAM = r"""
#include "model.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

typedef struct { void (*body)(void *, int64_t); void *data; int64_t from, to; } part;
static int loops;

static void *work(void *given) {
    part *p = given;
    for (int64_t k = p->from; k < p->to; k++) p->body(p->data, k);
    return NULL;
}

static void parallel_for(void *user, void (*body)(void *, int64_t), void *data, int64_t count) {
    part parts[2] = {{body, data, 0, count / 2}, {body, data, count / 2, count}};
    pthread_t thread;
    assert(user == &loops);
    loops++;
    pthread_create(&thread, NULL, work, &parts[0]);
    work(&parts[1]);
    pthread_join(thread, NULL);
}

static int blocks;
static void *counted(void *block, size_t bytes) { blocks += !block; return realloc(block, bytes); }
static void uncounted(void *block) { blocks -= !!block; free(block); }

int main(void) {
    enum { N = 200000, K = 3 };
    static double w[K], x[N * K], y[N], gradient[2][K];
    double value[2];
    int64_t shape[2], extents[] = {K, N};
    for (int k = 0; k < K; k++) w[k] = 0.1 * k;
    for (int i = 0; i < N; i++) {
        y[i] = i % 2;
        for (int k = 0; k < K; k++) x[i * K + k] = (i * 7 + k) % 11 - 5;
    }
    assert(model(K, N, w, x, y, &value[0], gradient[0]) == MODEL_OK);
    model_runtime runtime = {.size = sizeof runtime, .threads = 2, .user = &loops, .parallel_for = parallel_for,
                             .reallocate = counted, .release = uncounted};
    assert(model_init(&runtime) == MODEL_OK);
    assert(model(K, N, w, x, y, &value[1], gradient[1]) == MODEL_OK);
    assert(loops > 0 && blocks == 0);
    assert(!memcmp(&value[0], &value[1], sizeof value[0]) && !memcmp(gradient[0], gradient[1], sizeof gradient[0]));
    assert(model_result_shape(0, extents, shape) == 0);
    assert(model_result_shape(1, extents, shape) == 1 && shape[0] == K);
    assert(model_result_shape(2, extents, shape) == -1);
    assert(model(-1, N, w, x, y, value, gradient[0]) == MODEL_BAD_EXTENT);
    assert(strstr(model_error(MODEL_BAD_EXTENT), "extent") && !strcmp(model_error(0), "success"));
    assert(!strcmp(model_error(1000), "unknown status") && !strcmp(model_error(-1), "unknown status"));
    runtime.size = 8;
    assert(model_init(&runtime) == MODEL_NOT_READY && model_init(NULL) == MODEL_NOT_READY);
    printf("%.17g %.17g %.17g %.17g\n", value[0], gradient[0][0], gradient[0][1], gradient[0][2]);
    return 0;
}
"""


def compiled(folder: Path, text: str, *options: str) -> Path:
    """A program in C, linked with the object of a model."""
    source, target = folder / "main.c", folder / "main"
    source.write_text(text)
    warnings = ["-Wall", "-Wextra", "-Werror", "-std=c11", "-pedantic"]
    command = [str(CC), *warnings, "-O1", str(source), str(folder / "model.o"), "-o", str(target), "-lpthread", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@needs_compiler
def test_a_program_in_c_calls_a_gradient(tmp_path: Path) -> None:
    pb.export(pb.value_and_grad(loss), "f64[k]", "f64[n,k]", "f64[n]", path=tmp_path / "model")
    program = compiled(tmp_path, PROGRAM)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = list(map(float, done.stdout.split()))
    i = np.arange(200_000)
    x = ((i[:, None] * 7 + np.arange(3)) % 11 - 5).astype(float)
    value, gradient = pb.value_and_grad(loss)(0.1 * np.arange(3), x, (i % 2).astype(float))
    assert found == [value, *gradient]


CHECKS = r"""
#include "model.h"
#include <assert.h>
#include <stdio.h>

int main(void) {
    double x[5] = {0, 1, 2, 3, 4}, out[2];
    int64_t good[2] = {4, -5}, bad[2] = {1, 5};
    assert(model(5, x, good, out) == MODEL_OK && out[0] == 4 && out[1] == 0);
    int64_t status = model(5, x, bad, out);
    puts(model_error(status));
    return status < 6;
}
"""


@needs_compiler
def test_a_check_that_fails_is_a_status(tmp_path: Path) -> None:
    def pick(x: Array, k: Array) -> Array:
        return x[k]

    made = pb.export(pick, "f64[n]", "i64[2]", path=tmp_path / "model")
    done = subprocess.run([compiled(tmp_path, CHECKS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "IndexError" in done.stdout and "test_export.py:" in done.stdout
    assert "IndexError" in made.header.read_text()
    assert made.library is not None
    loaded = pb.load(made.library, trust=True)
    same(loaded(np.arange(5.0), np.array([4, -5])), np.array([4.0, 0.0]))
    with pytest.raises(IndexError) as caught:
        loaded(np.arange(5.0), np.array([1, 5]))
    assert any("test_export.py:" in note for note in caught.value.__notes__)


@needs_compiler
def test_the_header_is_c_and_cpp(tmp_path: Path) -> None:
    for name, (function, specs, _) in CASES.items():
        if name in ("solve", "ufunc", "complex scalar", "f16", "sort"):
            pb.export(function, *specs, path=tmp_path / "model")
            for language, standard in (("c", "c99"), ("c++", "c++11")):
                if language == "c++" and shutil.which("c++") is None:
                    continue
                options = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
                command = [str(CC), "-x", language, *options, str(tmp_path / "model.h")]
                done = subprocess.run(command, capture_output=True, text=True)
                assert "pragma" in done.stderr or done.returncode == 0, (name, done.stderr)


def test_the_text_of_a_header(tmp_path: Path, bless: bool) -> None:
    def step(p: dict[str, Any], x: Array, rate: float) -> dict[str, Any]:
        """One step of descent on the network's output."""
        gradients = pb.grad(network)(p, x)
        return {name: p[name] - rate * gradients[name] for name in p}

    made = pb.export(step, {"w": "f64[k,m]", "b": "f64[m]"}, "f64[n,k]", 0.1, path=tmp_path / "model", name="step")
    text = made.header.read_text().replace(pb.__version__, "VERSION")
    text = re.sub(r"for \S+, \S+\.$", "for TARGET.", text, count=1, flags=re.MULTILINE)
    golden = Path(__file__).parent / "kernels" / "step.h"
    if bless:
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_header_says_what_to_know(tmp_path: Path) -> None:
    made = pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "m2", name="logistic")
    text = made.header.read_text()
    assert " * The mean logistic loss." in text
    assert "weights of * / columns" in text
    arguments = "int64_t n, const double *w, const double *x, const double *y, double *value, double *gradient"
    assert f"int64_t logistic({arguments});" in text
    assert "   x: f64[n, 3]" in text
    outside = pb.export(lambda x: x @ WEIGHTS + SHIFT, "f64[n,3]", path=tmp_path / "m3").header.read_text()
    assert "WEIGHTS: f64[3,4] (96 bytes)" in outside


# ctypes, without pullback

FOREIGN = """
import ctypes, sys
sys.modules["pullback"] = None
import numpy as np
from scipy.linalg import cython_blas
path, = sys.argv[1:]
library = ctypes.CDLL(path)
i64, pointer = ctypes.c_int64, ctypes.c_void_p
library.model.restype = library.model_init.restype = i64
library.model_error.restype = ctypes.c_char_p
x, w = np.linspace(-1, 1, 40 * 50).reshape(40, 50), np.linspace(0, 0.04, 50 * 50).reshape(50, 50)
out = np.zeros((40, 50))
def call():
    return library.model(i64(40), i64(50), *(pointer(a.ctypes.data) for a in (x, w, out)))
assert call() == 0 and np.allclose(out, np.tanh(x @ w @ w)), "the object's own product"
out[...] = 0
name = ctypes.pythonapi.PyCapsule_GetName
name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
address = ctypes.pythonapi.PyCapsule_GetPointer
address.restype, address.argtypes = pointer, [ctypes.py_object, ctypes.c_char_p]
capsule = cython_blas.__pyx_capi__["dgemm"]
BODY = ctypes.CFUNCTYPE(None, pointer, i64)
counted = []
@ctypes.CFUNCTYPE(None, pointer, BODY, pointer, i64)
def parallel_for(user, body, data, count):
    counted.append(count)
    for k in reversed(range(count)):
        body(data, k)
fields = [1, 0, ctypes.cast(parallel_for, pointer).value, 0, 0, 0, 0, 0, address(capsule, name(capsule))]
runtime = (i64 * 10)(80, *fields)
assert library.model_init(runtime) == 0
assert call() == 0
assert np.allclose(out, np.tanh(x @ w @ w)), "another result"
print("done")
"""


@needs_linker
def test_ctypes_calls_a_library_without_pullback(tmp_path: Path) -> None:
    alone = pb.export(lambda x, w: np.tanh(x @ w), "f64[n,k]", "f64[k,m]", path=tmp_path / "alone")
    assert alone.needs == ()
    batch = pb.export(lambda x, w: np.tanh(x @ w), "f64[2,n,k]", "f64[2,k,m]", path=tmp_path / "batch")
    assert batch.needs == ()

    def in_a_loop(x: Array, w: Array) -> Array:
        return np.tanh(pb.fori_loop(0, 2, lambda _, y: y @ w, x))

    made = pb.export(in_a_loop, "f64[n,k]", "f64[k,k]", path=tmp_path / "model")
    assert made.needs == ("blas_dgemm",)
    done = subprocess.run([sys.executable, "-c", FOREIGN, str(made.library)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


@needs_linker
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_without_blas(dtype: str, turned: bool, tmp_path: Path) -> None:
    def product(a: Array, b: Array) -> Array:
        return a.T @ b.T if turned else a @ b

    specs = (f"{dtype}[k,n]", f"{dtype}[m,k]") if turned else (f"{dtype}[n,k]", f"{dtype}[k,m]")
    made = pb.export(product, *specs, path=tmp_path / "model")
    model = ctypes.CDLL(str(made.library)).model
    model.restype = ctypes.c_int64
    order, made_of = list(made.extents), {"f64": "f8", "f32": "f4"}[dtype]
    for sizes in ({"n": 1, "k": 1, "m": 1}, {"n": 5, "k": 7, "m": 3}, {"n": 129, "k": 65, "m": 33}, {"n": 3, "k": 0, "m": 4}):
        a, b = normal(sizes["n"], sizes["k"]).astype(made_of), normal(sizes["k"], sizes["m"]).astype(made_of)
        a, b = (np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)) if turned else (a, b)
        out = np.full((sizes["n"], sizes["m"]), np.nan, a.dtype)
        extents = [ctypes.c_int64(sizes[name]) for name in order]
        assert model(*extents, *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, out))) == 0
        np.testing.assert_allclose(out, product(a, b), atol=1e-11 if dtype == "f64" else 1e-3)


@needs_linker
def test_what_must_be_given_is_asked_for(tmp_path: Path) -> None:
    made = pb.export(np.sort, "f64[n]", path=tmp_path / "model")
    assert made.needs == ("sort_float64",)
    library = ctypes.CDLL(str(made.library))
    library.model.restype = ctypes.c_int64
    x = np.ones(5)
    assert library.model(ctypes.c_int64(5), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(x.ctypes.data)) == 3
    assert "sort.float64; must be given" in made.header.read_text()


@needs_linker
def test_a_loop_of_a_ufunc_without_data(tmp_path: Path) -> None:
    loaded = pb.load(str(pb.export(np.fft.irfft2, "c128[3,4]", path=tmp_path / "model").library), trust=True)
    x = normal(3, 4) + 1j * normal(3, 4)
    same(loaded(x), pb.jit(np.fft.irfft2)(x))


# sizes


def test_the_sizes_that_are_served_are_found(tmp_path: Path) -> None:
    def by_size(x: Array) -> Any:
        return x.sum() if len(x) <= 1234 else x.max()

    made = pb.export(by_size, "f64[n]", path=tmp_path / "model")
    assert made.extents == {"n": (0, 1234)}
    assert "n: an extent, from 0 to 1,234" in made.header.read_text()
    if made.library is not None:
        loaded = pb.load(made.library, trust=True)
        assert loaded(np.ones(1234)) == 1234
        with pytest.raises(ValueError, match="n from 0 to 1234, found 1235"):
            loaded(np.ones(1235))


@pytest.mark.parametrize("function", [
    lambda x: sum(x[k] for k in range(len(x))), lambda x: x * (len(x) % 3), lambda x: x * float(np.log(len(x))),
    lambda x: x[::2].sum() if len(x) % 2 else x.max(),
], ids=["loop", "remainder", "logarithm", "parity"])  # fmt: skip
def test_what_depends_on_a_size_is_refused(function: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="is not one program for all sizes"):
        pb.export(function, "f64[n]", path=tmp_path / "model")
    assert not list(tmp_path.iterdir())
    assert pb.export(function, "f64[70]", path=tmp_path / "model").extents == {}


def test_arrays_made_of_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="an array that the function makes without its arguments is another one"):
        pb.export(lambda x: x * np.hanning(len(x)), "f64[n]", path=tmp_path / "model")


def test_lone_sizes_are_looked_for(tmp_path: Path) -> None:
    def by_multiple(x: Array) -> Any:
        return x.sum() if len(x) % 64 == 0 else x.max()

    with pytest.raises(pb.ExportError, match="is not one program"):
        pb.export(by_multiple, "f64[n]", path=tmp_path / "model")


def test_sizes_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    def by_both(x: Array, y: Array) -> Any:
        return x.sum() + y.sum() if len(x) > len(y) else x.sum() * y.sum()

    with pytest.raises(pb.ExportError, match="is not one program"):
        pb.export(by_both, "f64[n]", "f64[m]", path=tmp_path / "model")


def test_extents_that_must_be_equal_have_one_name(tmp_path: Path) -> None:
    with pytest.raises((pb.ExportError, pb.TraceError)) as caught:
        pb.export(lambda x, y: x * y, "f64[n]", "f64[m]", path=tmp_path / "model")
    assert "one name" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@needs_linker
def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    made = pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "model")
    loaded = pb.load(str(made.library), trust=True)
    w, x, y = normal(3), normal(7, 3), normal(7)
    same(loaded(w, y=y, x=x), pb.value_and_grad(loss)(w, x, y))
    same(loaded(w, np.asfortranarray(x), y[::-1][::-1]), pb.value_and_grad(loss)(w, x, y))
    with pytest.raises(ValueError, match=r"y has shape \(6,\): \(7,\) is expected with n=7"):
        loaded(w, x, y[:6])
    with pytest.raises(ValueError, match=r"w has shape \(4,\): \(3,\) is expected"):
        loaded(normal(4), x, y)
    with pytest.raises(TypeError, match=r"x is float32\[7, 3\]: float64\[n, 3\] is expected"):
        loaded(w, x.astype("f4"), y)
    with pytest.raises(TypeError, match="w is a list"):
        loaded([1.0, 2.0, 3.0], x, y)
    with pytest.raises(TypeError, match="misses 'y'"):
        loaded(w, x)
    with pytest.raises(TypeError, match="got 'z'"):
        loaded(w, x, y, z=1)
    with pytest.raises(TypeError, match="3 positional"):
        loaded(w, x, y, y)


@needs_linker
def test_what_was_static_must_be_the_same(tmp_path: Path) -> None:
    made = pb.export(lambda x, mode, n: np.reshape(x if mode == "a" else -x, (n, -1)), "f64[12]", "a", 3, path=tmp_path / "model")
    loaded = pb.load(str(made.library), trust=True)
    assert loaded(np.ones(12), "a", 3).shape == (3, 4)
    with pytest.raises(TypeError, match="exported for 'a'"):
        loaded(np.ones(12), "b", 3)
    with pytest.raises(ValueError, match="exported for 3"):
        loaded(np.ones(12), "a", 4)
    made = pb.export(pb.jit(np.reshape, static_argnames="shape"), "f64[12]", (3, 4), path=tmp_path / "other")
    assert pb.load(str(made.library), trust=True)(np.ones(12), (3, 4)).shape == (3, 4)


# processors


@needs_linker
@pytest.mark.parametrize("cpu", ["baseline", "avx2", "x86-64-v3"])
def test_other_processors(cpu: str, tmp_path: Path) -> None:
    if exported.platform.machine() != "x86_64" or not {*exported.features_of(exported.host_of(cpu))} <= {
        *exported.features_of(exported.host_of("native"))
    }:
        pytest.skip(f"this processor runs no code for {cpu}")
    made = pb.export(pb.value_and_grad(loss), "f64[k]", "f64[n,k]", "f64[n]", path=tmp_path / "model", cpu=cpu)
    loaded = pb.load(str(made.library), trust=True)
    w, x, y = normal(5), normal(70, 5), normal(70)
    for found, expected in zip(leaves(loaded(w, x, y)), leaves(pb.value_and_grad(loss)(w, x, y)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert loaded.cpu.startswith("x86-64")


@needs_linker
def test_a_processor_without_the_instructions_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if exported.platform.machine() != "x86_64":
        pytest.skip("only x86-64 is asked")
    monkeypatch.setitem(cpuid.BITS, "another", (0x7FFFFFF0, 0, 0, 0))
    monkeypatch.setattr("pullback.exporting.features_of", lambda host: ("sse3", "another"))
    made = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    with pytest.raises(RuntimeError, match="lacks instructions"):
        pb.load(str(made.library), trust=True)
    library = ctypes.CDLL(str(made.library))
    library.model.restype = ctypes.c_int64
    x = np.zeros(3)
    assert library.model(ctypes.c_int64(3), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(x.ctypes.data)) == 4


def test_unknown_processors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cpu='z80'"):
        pb.export(lambda x: x, "f64[n]", path=tmp_path / "model", cpu="z80")


# threads


@needs_linker
def test_two_threads_call_at_once(tmp_path: Path) -> None:
    function, specs, _ = CASES["solve"]
    loaded = pb.load(str(pb.export(function, *specs, path=tmp_path / "model").library), trust=True)
    inputs = [(normal(n, n), normal(n)) for n in (5, 40, 90)]
    expected = [function(*given) for given in inputs]
    problems: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for k in range(60):
                same(loaded(*inputs[(first + k) % 3]), expected[(first + k) % 3])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@needs_linker
def test_two_models_in_one_process(tmp_path: Path) -> None:
    first = pb.load(str(pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "first").library), trust=True)
    second = pb.load(str(pb.export(lambda x: x + 2, "f64[n]", path=tmp_path / "second").library), trust=True)
    same(first(np.zeros(2)), np.full(2, 1.0))
    same(second(np.zeros(2)), np.full(2, 2.0))


# what cannot be exported


def test_what_needs_python_is_refused(tmp_path: Path) -> None:
    def printing(x: Array) -> Any:
        pb.print("x is {}", x)
        return x.sum()

    def calling(x: Array) -> Any:
        return pb.callback(np.cumsum, x, x)

    for function in (printing, calling):
        with pytest.raises(pb.ExportError, match="which an object without Python cannot"):
            pb.export(function, "f64[3]", path=tmp_path / "model")


def test_writes_into_arguments_are_refused(tmp_path: Path) -> None:
    def writing(x: Array) -> None:
        x[0] = 1

    with pytest.raises(pb.ExportError, match="writes into x: return what it writes"):
        pb.export(writing, "f64[n]", path=tmp_path / "model")


def test_branches_on_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="follows branches"):
        pb.export(pb.jit(lambda x: x if x.sum() > 0 else -x, guards=True), "f64[3]", path=tmp_path / "model")


def test_bad_specs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no dtype f63"):
        pb.export(lambda x: x, "f63[n]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="an extent is a number or a name"):
        pb.export(lambda x: x, "f64[n+1]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="as C has them"):
        pb.export(lambda x: x, "f64[n]", path=tmp_path / "model", name="a-b")
    with pytest.raises(ValueError, match="C cannot take int"):
        pb.export(lambda x: x, "f64[int]", path=tmp_path / "model")


# files


def test_no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(pb.ExportWarning, match=r"no linker is on PATH \(cc, gcc, clang, ld\): model.o is written, model.so"):
        made = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    assert made.library is None and made.object.exists() and made.header.exists()


@pytest.mark.parametrize("linker", [name for name in linking.LINKERS if shutil.which(name)])
def test_each_linker(linker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "LINKERS", (linker,))
    made = pb.export(pb.value_and_grad(saving), "f64[n]", path=tmp_path / "model")
    same(pb.load(str(made.library), trust=True)(np.ones(3)), pb.value_and_grad(saving)(np.ones(3)))
    assert not list(tmp_path.glob(".*"))


def test_a_linker_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    bad.chmod(0o755)
    monkeypatch.setattr(linking, "find_linker", lambda: str(bad))
    monkeypatch.setattr("pullback.exporting.find_linker", lambda: str(bad))
    with pytest.warns(pb.ExportWarning, match="no room"):
        assert pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model").library is None


@needs_linker
def test_loading_asks_for_trust(tmp_path: Path) -> None:
    made = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="pass trust=True"):
        pb.load(str(made.library))
    with pytest.raises(OSError):
        pb.load(tmp_path / "nothing.so", trust=True)
    with pytest.raises(OSError):
        pb.load(made.object, trust=True)


@needs_linker
def test_a_file_that_changed_is_loaded_anew(tmp_path: Path) -> None:
    first = pb.load(str(pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model").library), trust=True)
    second = pb.load(str(pb.export(lambda x: x + 2, "f64[n]", path=tmp_path / "model").library), trust=True)
    third = pb.load(str(pb.export(lambda x: x + 3, "f64[n]", path=tmp_path / "model").library), trust=True)
    for function, expected in ((first, 1.0), (second, 2.0), (third, 3.0), (first, 1.0)):
        same(function(np.zeros(2)), np.full(2, expected))


@needs_linker
def test_a_loop_is_interrupted(tmp_path: Path) -> None:
    def forever(x: Any) -> Any:
        return pb.while_loop(lambda c: c > 0, lambda c: c * 0.5 + 1, x)

    loaded = pb.load(str(pb.export(forever, "f64[]", path=tmp_path / "model").library), trust=True)

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            loaded(np.float64(1))
    finally:
        signal.signal(signal.SIGALRM, before)


@needs_compiler
def test_a_foreign_library_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text('const char pullback_exported[] = "x"; const char x_manifest[] = "[]";')
    subprocess.run([str(CC), "-shared", "-fPIC", str(tmp_path / "x.c"), "-o", str(tmp_path / "x.so")], check=True)
    with pytest.raises(ValueError, match=r"was not made by pb\.export"):
        pb.load(tmp_path / "x.so", trust=True)


@needs_linker
def test_a_manifest_is_json_without_code(tmp_path: Path) -> None:
    made = pb.export(loss, "f64[k]", "f64[n,k]", "f64[n]", path=tmp_path / "model")
    library = ctypes.CDLL(str(made.library))
    about = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "model_manifest"))))
    assert about["title"] == "loss" and about["extents"] == [["k", 0, None], ["n", 0, None]]
    assert about["failures"] == [] and FIRST_CHECK == 6


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(textwrap.dedent("""
        import numpy as np

        def loss(w, x):
            return np.sum((x @ w) ** 2)

        def bad(x):
            return sum(x[k] for k in range(len(x)))
    """))

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = (sys.executable, "-m", "pullback", "export", *words)
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)

    done = command("model.py:loss", "f64[k]", "f64[n,k]", "--grad", "--out", "out/model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["out/model.o", "out/model.h"]
    assert "serves k from 0 on, n from 0 on" in done.stdout
    assert (tmp_path / "out" / "model.h").exists()
    done = command("model.py:bad", "f64[n]", "--out", "out/bad")
    assert done.returncode == 1 and "not one program for all sizes" in done.stderr
    done = command("model.py:loss", "f64[k+1]", "f64[3]", "--out", "out/bad")
    assert done.returncode == 2 and "names and numbers" in done.stderr
