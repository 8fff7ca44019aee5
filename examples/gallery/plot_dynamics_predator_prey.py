"""
What a population depends on
============================

Hares and lynxes by Lotka and Volterra, and the sensitivity of the number of hares to each of the
four rates over time: one Jacobian through the loop of the solver.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def change(state, birth, eaten, feeding, death):
    hares, lynxes = state
    return np.array([birth * hares - eaten * hares * lynxes, feeding * hares * lynxes - death * lynxes])


def hares(rates, t):
    """Numbers at the times t, by one step of the midpoint rule between two of them."""
    state = np.array([10.0, 5.0])
    result = np.empty(len(t))
    for k in range(len(t)):
        result[k] = state[0]
        middle = state + 0.5 * (t[1] - t[0]) * change(state, *rates)
        state = state + (t[1] - t[0]) * change(middle, *rates)
    return result


rates = np.array([0.8, 0.1, 0.03, 0.6])
t = np.linspace(0, 25, 2000)
sensitivity = pb.jacfwd(hares)(rates, t) * rates  # change of the number for a change of 100 % of the rate

fig, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(6.4, 4.6))
top.plot(t, hares(rates, t))
top.set(ylabel="hares")
for name, column in zip(("birth", "eaten", "feeding", "death"), sensitivity.T, strict=True):
    bottom.plot(t, column, label=name)
bottom.set(xlabel="time", ylabel="sensitivity")
bottom.legend(ncol=4, fontsize=8)
