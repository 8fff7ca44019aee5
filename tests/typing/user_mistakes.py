"""Mistakes that type checkers must find: each line that ends in ``# error``, and no other."""

import numpy as np
from numpy.typing import NDArray

import pullback as pb

Vector = NDArray[np.float64]


@pb.jit
def scale(x: Vector, by: float) -> Vector:
    return x * by


class Model:
    @pb.jit
    def predict(self, x: Vector) -> Vector:
        return x


scale(np.ones(3), 2.0)
scale(np.ones(3))  # error
scale(np.ones(3), by="two")  # error
scale(np.ones(3), 2.0).nothing()  # error
pb.value_and_grad(scale)(np.ones(3), to=1.0)  # error
Model().predict(np.ones(3))
Model().predict()  # error
Model().predict(np.ones(3), 2)  # error
pb.jit(3)  # error
pb.jit(scale, no_such_option=True)  # error
pb.grad(scale, argnums="x")  # error
pb.find_nan(scale)(np.ones(3))  # error
pb.check_grad(scale, order="2")  # error
