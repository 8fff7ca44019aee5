"""
A function that cannot be compiled
==================================

The page shows the error at its line: what was met there, and what to write instead.
"""

import numpy as np

import pullback as pb


def above(x, level):
    """The sum of the logarithms of the elements above a level; an invalid operation raises."""
    with np.errstate(all="raise"):
        return np.sum(np.log(x[x > level]))


page = pb.jit(above).view(np.arange(5.0), 2.0)
print(page)
