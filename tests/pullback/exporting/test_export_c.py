"""Exported objects in programs without pullback: in C, and by ctypes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.exports import CASES, CC, SHIFT, WEIGHTS, Array, loss, needs_compiler, needs_linker, network, normal, same
from tests.support.paths import GOLDEN

pytestmark = pytest.mark.usefixtures("our_products")

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
    result = list(map(float, done.stdout.split()))
    i = np.arange(200_000)
    x = ((i[:, None] * 7 + np.arange(3)) % 11 - 5).astype(float)
    value, gradient = pb.value_and_grad(loss)(0.1 * np.arange(3), x, (i % 2).astype(float))
    assert result == [value, *gradient]


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

    built = pb.export(pick, "f64[n]", "i64[2]", path=tmp_path / "model")
    done = subprocess.run([compiled(tmp_path, CHECKS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "IndexError" in done.stdout and "test_export_c.py:" in done.stdout
    assert "IndexError" in built.header.read_text()
    assert built.library is not None
    loaded = pb.load(built.library, trust=True)
    same(loaded(np.arange(5.0), np.array([4, -5])), np.array([4.0, 0.0]))
    with pytest.raises(IndexError) as caught:
        loaded(np.arange(5.0), np.array([1, 5]))
    assert any("test_export_c.py:" in note for note in caught.value.__notes__)


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

    built = pb.export(step, {"w": "f64[k,m]", "b": "f64[m]"}, "f64[n,k]", 0.1, path=tmp_path / "model", name="step")
    text = built.header.read_text().replace(pb.__version__, "VERSION")
    text = re.sub(r"for \S+, \S+\.$", "for TARGET.", text, count=1, flags=re.MULTILINE)
    golden = GOLDEN / "kernels" / "step.h"
    if bless:
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_header_says_what_to_know(tmp_path: Path) -> None:
    built = pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "m2", name="logistic")
    text = built.header.read_text()
    assert " * The mean logistic loss." in text
    assert "weights of * / columns" in text
    arguments = "int64_t n, const double *w, const double *x, const double *y, double *value, double *gradient"
    assert f"int64_t logistic({arguments});" in text
    assert "   x: f64[n, 3]" in text
    outside = pb.export(lambda x: x @ WEIGHTS + SHIFT, "f64[n,3]", path=tmp_path / "m3").header.read_text()
    assert "WEIGHTS: f64[3,4] (96 bytes)" in outside


# by ctypes

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

    built = pb.export(in_a_loop, "f64[n,k]", "f64[k,k]", path=tmp_path / "model")
    assert built.needs == ("blas_dgemm",)
    done = subprocess.run([sys.executable, "-c", FOREIGN, str(built.library)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


@needs_linker
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_without_blas(dtype: str, turned: bool, tmp_path: Path) -> None:
    def product(a: Array, b: Array) -> Array:
        return a.T @ b.T if turned else a @ b

    specs = (f"{dtype}[k,n]", f"{dtype}[m,k]") if turned else (f"{dtype}[n,k]", f"{dtype}[k,m]")
    built = pb.export(product, *specs, path=tmp_path / "model")
    model = ctypes.CDLL(str(built.library)).model
    model.restype = ctypes.c_int64
    order, made_of = list(built.extents), {"f64": "f8", "f32": "f4"}[dtype]
    for sizes in ({"n": 1, "k": 1, "m": 1}, {"n": 5, "k": 7, "m": 3}, {"n": 129, "k": 65, "m": 33}, {"n": 3, "k": 0, "m": 4}):
        a, b = normal(sizes["n"], sizes["k"]).astype(made_of), normal(sizes["k"], sizes["m"]).astype(made_of)
        a, b = (np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)) if turned else (a, b)
        out = np.full((sizes["n"], sizes["m"]), np.nan, a.dtype)
        extents = [ctypes.c_int64(sizes[name]) for name in order]
        assert model(*extents, *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, out))) == 0
        np.testing.assert_allclose(out, product(a, b), atol=1e-11 if dtype == "f64" else 1e-3)


@needs_linker
def test_what_must_be_given_is_asked_for(tmp_path: Path) -> None:
    built = pb.export(np.sort, "f64[n]", path=tmp_path / "model")
    assert built.needs == ("sort_float64",)
    library = ctypes.CDLL(str(built.library))
    library.model.restype = ctypes.c_int64
    x = np.ones(5)
    assert library.model(ctypes.c_int64(5), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(x.ctypes.data)) == 3
    assert "sort.float64; must be given" in built.header.read_text()


@needs_linker
def test_a_loop_of_a_ufunc_without_data(tmp_path: Path) -> None:
    loaded = pb.load(str(pb.export(np.fft.irfft2, "c128[3,4]", path=tmp_path / "model").library), trust=True)
    x = normal(3, 4) + 1j * normal(3, 4)
    same(loaded(x), pb.jit(np.fft.irfft2)(x))
