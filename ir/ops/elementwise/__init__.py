"""Elementwise ops: scalar functions of every dtype and their derivatives."""

from pullback.ir.ops.elementwise import bessel, elementwise, gamma_beta_erf, hypergeometric, native_ufunc, semantics

__all__ = ["bessel", "elementwise", "gamma_beta_erf", "hypergeometric", "native_ufunc", "semantics"]
