"""Ops of kernels: memory, loops over elements, small matrices, functions."""

from pullback.ir.ops.kernel import float_parts, functions, kernel, matmul, small_matrices

__all__ = ["float_parts", "functions", "kernel", "matmul", "small_matrices"]
