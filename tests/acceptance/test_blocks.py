"""The blocks of convolutional networks, compared with the same layers with gradients by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layers import blocks

from tests.acceptance import by_hand
from tests.acceptance.by_hand import Tape
from tests.acceptance.checks import Program, check, draw, in_dtypes

Array = Any


def conv_norm(tape: Tape, p: dict[str, Array], name: str, x: Array, stride: int = 1, layer: Any = by_hand.conv2d) -> Array:
    w, gamma = p[f"w_{name}"], p[f"gamma_{name}"]
    x = tape(layer, x, w, np.zeros(len(gamma)), stride=stride, pad=w.shape[2] // 2)
    return tape(by_hand.batch_norm, x, gamma, p[f"beta_{name}"])


def mbconv(tape: Tape, p: dict[str, Array], x: Array, stride: int = 1) -> Array:
    wide = tape(by_hand.silu, conv_norm(tape, p, "expand", x)) if "w_expand" in p else x
    deep = tape(by_hand.silu, conv_norm(tape, p, "depthwise", wide, stride, by_hand.depthwise))
    weights = tape(by_hand.conv2d, tape(by_hand.average, deep), p["w_squeeze"], p["b_squeeze"])
    weights = tape(by_hand.conv2d, weights, p["w_excite"], p["b_excite"])
    out = conv_norm(tape, p, "project", tape(by_hand.scale_channels, deep, weights))
    return tape(by_hand.add, out, x) if out.shape == x.shape else out


def shortcut(tape: Tape, p: dict[str, Array], x: Array, stride: int) -> Array:
    return conv_norm(tape, p, "shortcut", x, stride) if "w_shortcut" in p else x


def basic_block(tape: Tape, p: dict[str, Array], x: Array, stride: int = 1) -> Array:
    out = tape(by_hand.relu, conv_norm(tape, p, "1", x, stride))
    return tape(by_hand.relu, tape(by_hand.add, conv_norm(tape, p, "2", out), shortcut(tape, p, x, stride)))


def bottleneck_block(tape: Tape, p: dict[str, Array], x: Array, stride: int = 1) -> Array:
    out = tape(by_hand.relu, conv_norm(tape, p, "1", x))
    out = tape(by_hand.relu, conv_norm(tape, p, "2", out, stride))
    return tape(by_hand.relu, tape(by_hand.add, conv_norm(tape, p, "3", out), shortcut(tape, p, x, stride)))


def unet_level(tape: Tape, p: dict[str, Array], x: Array) -> Array:
    down = tape(by_hand.relu, tape(by_hand.conv2d, x, p["w_down"], p["b_down"], pad=1))
    up = tape(by_hand.conv2d_transpose, tape(by_hand.max_pool, down), p["w_up"], p["b_up"])
    return tape(by_hand.relu, tape(by_hand.conv2d, tape(by_hand.beside, down, up), p["w_join"], p["b_join"], pad=1))


def norm_shapes(name: str, *filters: int, channels: int = 0) -> dict[str, tuple[int, ...]]:
    c = channels or filters[0]
    return {f"w_{name}": filters, f"gamma_{name}": (c,), f"beta_{name}": (c,)}


def conv_shapes(name: str, *filters: int, channels: int = 0) -> dict[str, tuple[int, ...]]:
    return {f"w_{name}": filters, f"b_{name}": (channels or filters[0],)}


def mbconv_shapes(c: int, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    return {
        **(norm_shapes("expand", wide, c, 1, 1) if wide != c else {}),
        **norm_shapes("depthwise", wide, 1, 3, 3),
        **conv_shapes("squeeze", 2, wide, 1, 1),
        **conv_shapes("excite", wide, 2, 1, 1),
        **norm_shapes("project", out, wide, 1, 1),
    }


def basic_shapes(c: int, f: int) -> dict[str, tuple[int, ...]]:
    side = norm_shapes("shortcut", f, c, 1, 1) if f != c else {}
    return {**norm_shapes("1", f, c, 3, 3), **norm_shapes("2", f, f, 3, 3), **side}


def bottleneck_shapes(c: int, f: int) -> dict[str, tuple[int, ...]]:
    side = norm_shapes("shortcut", f, c, 1, 1) if f != c else {}
    ends = {**norm_shapes("1", 2, c, 1, 1), **norm_shapes("2", 2, 2, 3, 3), **norm_shapes("3", f, 2, 1, 1)}
    return {**ends, **side}


UNET = {
    **conv_shapes("down", 3, 2, 3, 3),
    **conv_shapes("up", 3, 3, 2, 2),
    **conv_shapes("join", 2, 6, 3, 3),
}
BLOCKS = {
    "mbconv": (blocks.mbconv, mbconv, mbconv_shapes(3, 6, 3), {}),
    "mbconv that halves": (blocks.mbconv, mbconv, mbconv_shapes(3, 6, 4), {"stride": 2}),
    "mbconv of no expansion": (blocks.mbconv, mbconv, mbconv_shapes(3, 3, 3), {}),
    "basic": (blocks.basic_block, basic_block, basic_shapes(3, 3), {}),
    "basic that halves": (blocks.basic_block, basic_block, basic_shapes(3, 4), {"stride": 2}),
    "bottleneck": (blocks.bottleneck_block, bottleneck_block, bottleneck_shapes(3, 3), {}),
    "bottleneck that halves": (blocks.bottleneck_block, bottleneck_block, bottleneck_shapes(3, 4), {"stride": 2}),
    "u-net": (blocks.unet_level, unet_level, UNET, {}),
}


def program(name: str) -> Program:
    block, oracle, shapes, options = BLOCKS[name]

    def f(x: Array, *params: Array, **options: Any) -> Array:
        return block(dict(zip(shapes, params)), x, **options)

    def taped(x: Array, *params: Array, **options: Any) -> tuple[Tape, Array]:
        tape = Tape()
        return tape, oracle(tape, dict(zip(shapes, params)), x, **options)

    return Program(
        f=f,
        args=tuple(draw((2, 2 if "u-net" in name else 3, 6, 4), *shapes.values())),
        oracle=lambda *args, **options: taped(*args, **options)[1],
        formula=lambda ct, *args, **options: taped(*args, **options)[0].gradients(ct, args),
        options=options,
        cancels=0.1,
    )


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(BLOCKS))
def test_block(name: str, dtype: Any) -> None:
    check(program(name), dtype)
