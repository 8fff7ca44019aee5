"""Small networks, whole. ``params`` are lists of weights and biases in turn: w1, b1, w2, b2, ..."""

from layers.activations import dropout, relu, sigmoid
from layers.convolution import conv2d
from layers.dense import affine
from layers.losses import l2_loss, softmax, softmax_cross_entropy
from layers.pooling import max_pool2d


def two_layer_affine_l2_net(params, x, y):
    """The squared distance of affine, relu, affine from y.

    x: (N, D), w1: (D, M), w2: (M, K), y: (N, K). Result: a number.
    """
    w1, b1, w2, b2 = params
    return l2_loss(affine(relu(affine(x, w1, b1)), w2, b2), y)


def feed_forward(params, x, activation=sigmoid, key=None, keep=0.5):
    """Affine, relu, dropout, affine, activation; without a key no dropout.

    x: (N, D), w1: (D, M), w2: (M, K). Result: (N, K).
    """
    w1, b1, w2, b2 = params
    hidden = relu(affine(x, w1, b1))
    if key is not None:
        hidden = dropout(hidden, key, keep)
    return activation(affine(hidden, w2, b2))


def lenet_scores(params, x, key=None, keep=0.5):
    """Convolution, relu and pooling twice, then affine, relu, dropout and affine; without a key no dropout.

    x: (N, C, H, W), w1: (F1, C, Hf, Wf), w2: (F2, F1, Hf, Wf), w3: (F2 (H / 4) (W / 4), M), w4: (M, K). Result: (N, K).

    Y. LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998.
    """
    w1, b1, w2, b2, w3, b3, w4, b4 = params
    for w, b in ((w1, b1), (w2, b2)):
        x = relu(conv2d(x, w, b, pad=(w.shape[2] // 2, w.shape[3] // 2)))
        x = max_pool2d(x, (2, 2), (2, 2))
    hidden = relu(affine(x.reshape(len(x), -1), w3, b3))
    if key is not None:
        hidden = dropout(hidden, key, keep)
    return affine(hidden, w4, b4)


def lenet(params, x, key=None, keep=0.5):
    """The probabilities of classes: the softmax of ``lenet_scores``."""
    return softmax(lenet_scores(params, x, key, keep))


def softmax_classifier(params, x, y):
    """The cross-entropy of a linear classifier.

    x: (N, D), w: (D, K), y: (N, K). Result: a number.
    """
    w, b = params
    return softmax_cross_entropy(affine(x, w, b), y)


def two_biases(x, b1, b2):
    """(x + b1) x + b2, whose x has two readers."""
    return (x + b1) * x + b2
