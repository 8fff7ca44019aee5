"""Recurrent layers of sequences (N, T, D). The loop over steps is one ``scan``: programs and compile times are those of one
step, whatever T is."""

import numpy as np
from scipy.special import expit

import pullback as pb


def rnn_step(w, b, h, x):
    """tanh([x, h] w + b).

    x: (N, D), h: (N, M), w: (D + M, M), b: (M,). Result: (N, M).
    """
    return np.tanh(np.concatenate([x, h], axis=1) @ w + b)


def rnn(x, w, b, h0, return_sequences=True):
    """The states that ``rnn_step`` goes through.

    x: (N, T, D), w: (D + M, M), b: (M,), h0: (N, M). Result: (N, T, M), or the last state alone.

    J. L. Elman, Finding Structure in Time, 1990.
    """

    def step(h, x_t):
        h = rnn_step(w, b, h, x_t)
        return h, h if return_sequences else None

    h, states = pb.scan(step, h0, np.swapaxes(x, 0, 1))
    return np.swapaxes(states, 0, 1) if return_sequences else h


def lstm_step(w, z, h, c):
    """The next h and c, from gates i, f, o, g: c = f c + i g, h = o tanh c.

    z: (N, 4 M), the share of the inputs in the gates; w: (M, 4 M), the weights of h; h, c: (N, M).
    """
    i, f, o, g = np.split(z + h @ w, 4, axis=1)
    c = expit(f) * c + expit(i) * np.tanh(g)
    return expit(o) * np.tanh(c), c


def lstm(x, w, b, h0, c0, return_sequences=True, reverse=False):
    """Long short-term memory: the outputs h of all steps, or of the last alone, and the last c.

    x: (N, T, D), w: (D + M, 4 M), b: (4 M,), columns in the order i, f, o, g; h0, c0: (N, M). Result: (N, T, M) or (N, M),
    and (N, M). ``reverse``: from the last step to the first; each output stays at its step.

    S. Hochreiter, J. Schmidhuber, Long Short-Term Memory, 1997.
    """
    d = x.shape[2]

    def step(carry, z):
        h, c = lstm_step(w[d:], z, *carry)
        return (h, c), h if return_sequences else None

    (h, c), outputs = pb.scan(step, (h0, c0), np.swapaxes(x @ w[:d] + b, 0, 1), reverse=reverse)
    return np.swapaxes(outputs, 0, 1) if return_sequences else h, c


def bilstm(x, forward, backward, return_sequences=True):
    """Two LSTMs, one from each end of the sequence: their concatenated outputs, and the last c of both.

    x: (N, T, D); forward, backward: (w, b, h0, c0) of ``lstm``. Result: (N, T, 2 M), or (N, 2 M), the last output of each; and
    two arrays (N, M).

    A. Graves, J. Schmidhuber, Framewise Phoneme Classification with Bidirectional LSTM Networks, 2005.
    """
    out, c = lstm(x, *forward, return_sequences)
    reverse_out, reverse_c = lstm(x, *backward, return_sequences, reverse=True)
    return np.concatenate([out, reverse_out], axis=-1), (c, reverse_c)
