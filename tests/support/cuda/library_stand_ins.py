"""cuBLAS and cuSOLVER as their documentation has them, in Python over LAPACK, on the memory of the stand-in driver.

Their functions are called through ``ctypes`` by the prototypes below, written down from docs.nvidia.com/cuda/cusolver and
docs.nvidia.com/cuda/cublas: T is the type of the elements, R its real type. Matrices are column-major. Each function does its
work when it is called, so that nothing can be captured in a graph.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

PROTOTYPES = """
cublasCreate_v2(cublasHandle_t *handle)
cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)
cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t workspaceSizeInBytes)
cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void *alpha, const void *A, cudaDataType Atype, int lda, long long int strideA, const void *B, cudaDataType Btype,
    int ldb, long long int strideB, const void *beta, void *C, cudaDataType Ctype, int ldc, long long int strideC, int batchCount,
    cublasComputeType_t computeType, cublasGemmAlgo_t algo)
cublas<t>trsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,
    cublasDiagType_t diag, int m, int n, const T *alpha, const T *A, int lda, T *B, int ldb)
cublas<t>trsv_v2(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag, int n, const T *A,
    int lda, T *x, int incx)
cublas<t>geam(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const T *alpha, const T *A,
    int lda, const T *beta, const T *B, int ldb, T *C, int ldc)
cusolverDnCreate(cusolverDnHandle_t *handle)
cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t streamId)
cusolverDnCreateGesvdjInfo(gesvdjInfo_t *info)
cusolverDn<t>potrf_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *A, int lda, int *Lwork)
cusolverDn<t>potrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *A, int lda, T *Workspace, int Lwork, int *devInfo)
cusolverDn<t>getrf_bufferSize(cusolverDnHandle_t handle, int m, int n, T *A, int lda, int *Lwork)
cusolverDn<t>getrf(cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *Workspace, int *devIpiv, int *devInfo)
cusolverDn<t>getrs(cusolverDnHandle_t handle, cublasOperation_t trans, int n, int nrhs, const T *A, int lda, const int *devIpiv,
    T *B, int ldb, int *devInfo)
cusolverDn<t>geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, T *A, int lda, int *Lwork)
cusolverDn<t>geqrf(cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *TAU, T *Workspace, int Lwork, int *devInfo)
cusolverDn<o>gqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const T *A, int lda, const T *tau, int *lwork)
cusolverDn<o>gqr(cusolverDnHandle_t handle, int m, int n, int k, T *A, int lda, const T *tau, T *work, int lwork, int *devInfo)
cusolverDn<y>evd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const T *A, int lda,
    const R *W, int *lwork)
cusolverDn<y>evd(cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, T *A, int lda, R *W, T *work,
    int lwork, int *devInfo)
cusolverDn<t>gesvdj_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const T *A, int lda,
    const R *S, const T *U, int ldu, const T *V, int ldv, int *lwork, gesvdjInfo_t params)
cusolverDn<t>gesvdj(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, T *A, int lda, R *S, T *U, int ldu,
    T *V, int ldv, T *work, int lwork, int *info, gesvdjInfo_t params)
"""
NUMBERS = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
HANDLE, PARAMS = 0x5EED, 0xA11
SLACK = 5


def prototypes() -> dict[str, tuple[str, str, list[Any]]]:
    """By a function's name: the name without its letter, the letter, and the types of its arguments."""
    result = {}
    for name, arguments in re.findall(r"^(\S+?)\((.*?)\)$", PROTOTYPES, re.M | re.S):
        types = [_type(one) for one in arguments.split(",")]
        for letter in NUMBERS if "<" in name else "-":
            kinds = {
                "<t>": letter,
                "<o>": f"{letter}{'un' if letter in 'CZ' else 'or'}",
                "<y>": f"{letter}{'he' if letter in 'CZ' else 'sy'}",
            }
            plain = re.sub(r"<\w>", lambda m: kinds[m[0]], name)  # noqa: B023
            result[plain] = re.sub(r"<\w>", "", name), letter, types
    return result


def _type(text: str) -> Any:
    words = text.split()
    if "*" in text or words[0].endswith(("Handle_t", "Stream_t", "Info_t")):
        return ctypes.c_void_p
    return {"long": ctypes.c_longlong, "size_t": ctypes.c_size_t}.get(words[0], ctypes.c_int)


class Library:
    """A stand-in library. ``calls``: the calls made, by name without letter, with their integers. ``missing``: the names of
    functions that it lacks; ``failing``: the functions that return an error status."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.missing: set[str] = set()
        self.failing: dict[str, int] = {}
        self.stream = 0
        self.driver = ctypes.CDLL("libcuda.so.1")
        self._prototypes = prototypes()
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._prototypes or name in self.missing:
            raise AttributeError(name)
        if name not in self._made:
            plain, letter, types = self._prototypes[name]
            self._made[name] = ctypes.CFUNCTYPE(ctypes.c_int, *types)(lambda *given: self._called(name, plain, letter, given))
        return self._made[name]

    def _called(self, name: str, plain: str, letter: str, arguments: tuple[Any, ...]) -> int:
        try:
            if name in self.failing:
                return self.failing[name]
            if plain.endswith("_bufferSize"):
                _ints(arguments[-2] if "gesvdj" in plain else arguments[-1], 1)[0] = self._work(plain, arguments)
                return 0
            does: Callable[..., Any] = getattr(self, "_" + re.sub(r"^(cublas|cusolverDn)|_v2$", "", plain))
            if letter == "-":
                return int(does(*arguments) or 0)
            if self.driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)):
                return 7
            self.calls.append((plain, tuple(g for g in arguments[1:] if g is not None and abs(g) < 1 << 20)))
            does(NUMBERS[letter], *arguments)
            return 0
        except Exception:
            self.calls.append((f"{plain} failed", ()))
            raise

    def _work(self, plain: str, arguments: tuple[Any, ...]) -> int:
        return sum(g for g in arguments[1:-1] if isinstance(g, int) and 0 < g < 1 << 16) + SLACK

    # handles

    def _Create(self, position: int) -> None:
        ctypes.c_void_p.from_address(position).value = HANDLE

    def _CreateGesvdjInfo(self, position: int) -> None:
        ctypes.c_void_p.from_address(position).value = PARAMS

    def _SetStream(self, handle: int, stream: int) -> None:
        assert handle == HANDLE
        self.stream = stream

    def _SetWorkspace(self, handle: int, position: int, size: int) -> None:
        assert handle == HANDLE and position and size

    # cuBLAS

    def _GemmStridedBatchedEx(self, handle: int, *arguments: Any) -> int:
        ta, tb, m, n, k, alpha, a, ka, lda, sa, b, kb, ldb, sb, beta, c, kc, ldc, sc, count, arithmetic, algorithm = arguments
        if self.driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)):
            return 14
        dtype = {(0, 68): np.float32, (1, 70): np.float64, (4, 68): np.complex64, (5, 70): np.complex128}[ka, arithmetic]
        assert ka == kb == kc and algorithm == -1 and (_one(dtype, alpha), _one(dtype, beta)) == (1, 0)
        self.calls.append(("gemm", (m, n, k, ta, tb, count)))
        size = np.dtype(dtype).itemsize
        for turn in range(count):
            left = matrix(dtype, a + turn * sa * size, lda, (k, m) if ta else (m, k))
            right = matrix(dtype, b + turn * sb * size, ldb, (n, k) if tb else (k, n))
            matrix(dtype, c + turn * sc * size, ldc, (m, n))[...] = (left.T if ta else left) @ (right.T if tb else right)
        return 0

    def _trsm(
        self, dtype: Any, handle: int, side: int, fill: int, op: int, diagonal: int, m: int, n: int, *arguments: Any
    ) -> None:
        alpha, a, lda, b, ldb = arguments
        assert _one(dtype, alpha) == 1 and side == 1
        factor, x = matrix(dtype, a, lda, (n, n)), matrix(dtype, b, ldb, (m, n))
        x[...] = scipy.linalg.get_blas_funcs("trsm", (x,))(1, factor, x, side=side, lower=not fill, trans_a=op, diag=diagonal)

    def _trsv(
        self, dtype: Any, handle: int, fill: int, op: int, diagonal: int, n: int, a: int, lda: int, x: int, step: int
    ) -> None:
        assert step == 1
        factor, line = matrix(dtype, a, lda, (n, n)), matrix(dtype, x, n, (n, 1))
        line[:, 0] = scipy.linalg.get_blas_funcs("trsv", (line,))(factor, line[:, 0], lower=not fill, trans=op, diag=diagonal)

    def _geam(self, dtype: Any, handle: int, ta: int, tb: int, m: int, n: int, *arguments: Any) -> None:
        alpha, a, lda, beta, _, _, c, ldc = arguments
        assert (_one(dtype, alpha), _one(dtype, beta), tb) == (1, 0, 0)
        x = matrix(dtype, a, lda, (n, m) if ta else (m, n))
        matrix(dtype, c, ldc, (m, n))[...] = x.conj().T if ta == 2 else x.T if ta else x

    # cuSOLVER

    def _spoiled(self, dtype: Any, work: int, count: int, told: int) -> None:
        """Overwrite the work array with NaN, and check that its size is at least the requested one."""
        assert count >= told and work
        matrix(dtype, work, count, (count, 1))[...] = np.nan

    def _potrf(self, dtype: Any, handle: int, fill: int, n: int, a: int, lda: int, work: int, size: int, info: int) -> None:
        self._spoiled(dtype, work, size, SLACK + n + lda)
        x = matrix(dtype, a, lda, (n, n))
        x[...], _ints(info, 1)[0] = scipy.linalg.get_lapack_funcs("potrf", (x,))(x, lower=not fill, clean=False)

    def _getrf(self, dtype: Any, handle: int, m: int, n: int, a: int, lda: int, work: int, pivots: int, info: int) -> None:
        self._spoiled(dtype, work, SLACK + m + n + lda, SLACK)
        x = matrix(dtype, a, lda, (m, n))
        x[...], result, _ints(info, 1)[0] = scipy.linalg.get_lapack_funcs("getrf", (x,))(x)
        _ints(pivots, min(m, n))[...] = result + 1

    def _getrs(
        self, dtype: Any, handle: int, op: int, n: int, columns: int, a: int, lda: int, pivots: int, *arguments: int
    ) -> None:
        b, ldb, info = arguments
        x = matrix(dtype, b, ldb, (n, columns))
        solve = scipy.linalg.get_lapack_funcs("getrs", (x,))
        x[...], _ints(info, 1)[0] = solve(matrix(dtype, a, lda, (n, n)), _ints(pivots, n) - 1, x, trans=op)

    def _geqrf(
        self, dtype: Any, handle: int, m: int, n: int, a: int, lda: int, tau: int, work: int, size: int, info: int
    ) -> None:
        self._spoiled(dtype, work, size, SLACK + m + n + lda)
        x, k = matrix(dtype, a, lda, (m, n)), min(m, n)
        x[...], result, _, _ints(info, 1)[0] = scipy.linalg.get_lapack_funcs("geqrf", (x,))(x)
        matrix(dtype, tau, k, (k, 1))[:, 0] = result

    def _gqr(self, dtype: Any, handle: int, m: int, n: int, k: int, a: int, lda: int, tau: int, *arguments: int) -> None:
        work, size, info = arguments
        self._spoiled(dtype, work, size, SLACK + m + n + k + lda)
        x = matrix(dtype, a, lda, (m, n))
        name = "ungqr" if np.dtype(dtype).kind == "c" else "orgqr"
        x[...], _, _ints(info, 1)[0] = scipy.linalg.get_lapack_funcs(name, (x,))(x, matrix(dtype, tau, k, (k, 1))[:, 0])

    def _evd(self, dtype: Any, handle: int, mode: int, fill: int, n: int, a: int, lda: int, values: int, *arguments: int) -> None:
        work, size, info = arguments
        assert mode == 1
        self._spoiled(dtype, work, size, SLACK + n + lda)
        x = matrix(dtype, a, lda, (n, n))
        result, vectors, _ints(info, 1)[0] = getattr(scipy.linalg.lapack, _lapack(dtype, "syevd", "heevd"))(x, lower=not fill)
        real(dtype, values, n)[...], x[...] = result, vectors

    def _gesvdj(
        self, dtype: Any, handle: int, mode: int, thin: int, m: int, n: int, a: int, lda: int, values: int, *arguments: int
    ) -> None:
        u, ldu, v, ldv, work, size, info, params = arguments
        assert mode == 1 and params == PARAMS
        self._spoiled(dtype, work, size, SLACK + m + n)
        x, k = matrix(dtype, a, lda, (m, n)), min(m, n)
        left, result, right, _ints(info, 1)[0] = scipy.linalg.get_lapack_funcs("gesdd", (x,))(x, full_matrices=not thin)
        matrix(dtype, u, ldu, (m, k if thin else m))[...] = left
        matrix(dtype, v, ldv, (n, k if thin else n))[...] = right.conj().T
        real(dtype, values, k)[...] = result
        x[...] = np.nan


def _lapack(dtype: Any, of_real: str, of_complex: str) -> str:
    letter = {np.float32: "s", np.float64: "d", np.complex64: "c", np.complex128: "z"}[dtype]
    return letter + (of_complex if letter in "cz" else of_real)


def matrix(dtype: Any, position: int, leading: int, shape: tuple[int, int]) -> Any:
    """Return a column-major matrix at an address, with ``leading`` elements from one column to the next."""
    rows, columns = shape
    size = np.dtype(dtype).itemsize
    assert leading >= rows
    memory = (ctypes.c_char * (leading * (columns - 1) * size + rows * size)).from_address(position)
    return np.ndarray((rows, columns), dtype, memory, strides=(size, leading * size))


def real(dtype: Any, position: int, count: int) -> Any:
    return matrix(np.zeros((), dtype).real.dtype, position, count, (count, 1))[:, 0]


def _ints(position: int, count: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_int * count).from_address(position))


def _one(dtype: Any, position: int) -> Any:
    return matrix(dtype, position, 1, (1, 1))[0, 0]
