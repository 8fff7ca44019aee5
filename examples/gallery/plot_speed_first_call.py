"""
What a first call is made of
============================

The seconds of each stage of the compiler, for four functions of growing size. A later process reads
the kernels from the cache, and a later shape compiles nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def sums(x):
    return np.sum(np.sin(x) * x)


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.mean(np.log(e / np.sum(e, axis=1, keepdims=True))[:, 0])


def network(x):
    for _ in range(4):
        x = np.tanh(x @ np.eye(x.shape[1]))
    return np.mean(x**2)


def filtered(x):
    total = np.zeros(x.shape[1])
    for row in x:
        total = 0.9 * total + np.tanh(row)
    return np.sum(total)


x = np.ones((300, 20))
pb.jit(np.sum)(x)  # what the first compilation of a process loads is not counted
seconds = {}
for function in (sums, softmax, network, filtered):
    compiled = pb.value_and_grad(function)
    compiled(x)
    stages = compiled.cache_info().seconds  # "compile" is the sum of the stages in LLVM
    seconds[function.__name__] = {name: time for name, time in stages.items() if name != "compile"}

fig, ax = plt.subplots(figsize=(6.4, 3))
left = np.zeros(len(seconds))
for stage in dict.fromkeys(stage for times in seconds.values() for stage in times):
    widths = np.array([times.get(stage, 0) * 1e3 for times in seconds.values()])
    ax.barh(list(seconds), widths, left=left, label=stage, color=plt.cm.tab20(len(ax.containers)))
    left += widths
ax.set(xlabel="ms")
ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
fig.tight_layout()
