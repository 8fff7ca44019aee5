"""Emit LLVM IR that detects the features of an x86-64 processor and its system; it runs on any of them."""

from __future__ import annotations

from collections.abc import Sequence

# Leaf, subleaf, register (eax, ebx, ecx, edx) and bit of CPUID's result, by LLVM's name of the feature.
BITS = {
    "sse3": (1, 0, 2, 0), "pclmul": (1, 0, 2, 1), "ssse3": (1, 0, 2, 9), "fma": (1, 0, 2, 12), "sse4.1": (1, 0, 2, 19),
    "sse4.2": (1, 0, 2, 20), "movbe": (1, 0, 2, 22), "popcnt": (1, 0, 2, 23), "aes": (1, 0, 2, 25), "avx": (1, 0, 2, 28),
    "f16c": (1, 0, 2, 29), "bmi": (7, 0, 1, 3), "avx2": (7, 0, 1, 5), "bmi2": (7, 0, 1, 8), "avx512f": (7, 0, 1, 16),
    "avx512dq": (7, 0, 1, 17), "adx": (7, 0, 1, 19), "avx512ifma": (7, 0, 1, 21), "avx512cd": (7, 0, 1, 28),
    "avx512bw": (7, 0, 1, 30), "avx512vl": (7, 0, 1, 31), "avx512vbmi": (7, 0, 2, 1), "avx512vbmi2": (7, 0, 2, 6),
    "gfni": (7, 0, 2, 8), "vaes": (7, 0, 2, 9), "vpclmulqdq": (7, 0, 2, 10), "avx512vnni": (7, 0, 2, 11),
    "avx512bitalg": (7, 0, 2, 12), "avx512vpopcntdq": (7, 0, 2, 14), "avx512fp16": (7, 0, 3, 23),
    "avx512vp2intersect": (7, 0, 3, 8), "avxvnni": (7, 1, 0, 4), "avx512bf16": (7, 1, 0, 5), "cmpccxadd": (7, 1, 0, 7),
    "avxifma": (7, 1, 0, 23), "avxvnniint8": (7, 1, 3, 4), "avxneconvert": (7, 1, 3, 5), "avxvnniint16": (7, 1, 3, 10),
    "avx10.1": (7, 1, 3, 19), **dict.fromkeys(("egpr", "push2pop2", "ppx", "ndd", "ccmp", "nf", "cf", "zu"), (7, 1, 3, 21)),
    "lzcnt": (0x80000001, 0, 2, 5), "sse4a": (0x80000001, 0, 2, 6), "xop": (0x80000001, 0, 2, 11),
    "fma4": (0x80000001, 0, 2, 16), "tbm": (0x80000001, 0, 2, 21),
}  # fmt: skip
"""The features that generated code may use, with the position of their bits."""
FEATURES_OF_LEVEL = {
    "x86-64": (),
    "x86-64-v2": ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"),
    "x86-64-v3": ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"),
}
"""The features of each microarchitecture level."""
FEATURES_OF_LEVEL["x86-64-v4"] = (*FEATURES_OF_LEVEL["x86-64-v3"], "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

XMM_YMM, ZMM = 0x6, 0xE6
"""Bits of XCR0: the registers that a system saves for a program, as AVX and AVX-512 need them."""


def needed_state(features: Sequence[str]) -> int:
    """Return the bits of XCR0 that the system must set."""
    if any(feature.startswith("avx512") for feature in features):
        return ZMM
    return XMM_YMM if {"avx", "f16c", "fma", "vaes", "vpclmulqdq"} & {*features} else 0


def check(name: str, features: Sequence[str]) -> str:
    """Return a function ``i1 @name()`` that tests whether the processor has all features and the system lets them be used."""
    masks_of: dict[tuple[int, int], dict[int, int]] = {}
    for feature in features:
        leaf, subleaf, register, bit = BITS[feature]
        masks = masks_of.setdefault((leaf, subleaf), {})
        masks[register] = masks.get(register, 0) | 1 << bit
    state = needed_state(features)
    if state:
        masks_of.setdefault((1, 0), {}).setdefault(2, 0)
        masks_of[1, 0][2] |= 1 << 27
    lines = [f"define internal i1 @{name}() #0 {{", "entry:", "  br label %leaf0"]
    for k, ((leaf, subleaf), masks) in enumerate(sorted(masks_of.items())):
        base = leaf & 0x80000000
        lines += [f"leaf{k}:", *_cpuid_call(f"most{k}", base, 0), f"  %last{k} = extractvalue {_REGISTERS} %most{k}, 0"]
        lines += [f"  %known{k} = icmp uge i32 %last{k}, {_signed(leaf)}", f"  br i1 %known{k}, label %ask{k}, label %no"]
        lines += [f"ask{k}:", *_cpuid_call(f"found{k}", leaf, subleaf)]
        tests = []
        for register, mask in masks.items():
            at = f"{k}.{register}"
            lines += [
                f"  %word{at} = extractvalue {_REGISTERS} %found{k}, {register}",
                f"  %bits{at} = and i32 %word{at}, {_signed(mask)}",
                f"  %all{at} = icmp eq i32 %bits{at}, {_signed(mask)}",
            ]
            tests.append(f"%all{at}")
        lines.append(f"  %so{k}.0 = and i1 {tests[0]}, true")
        lines += [f"  %so{k}.{n} = and i1 %so{k}.{n - 1}, {hold}" for n, hold in enumerate(tests[1:], 1)]
        lines.append(f"  br i1 %so{k}.{len(tests) - 1}, label %leaf{k + 1}, label %no")
    lines.append(f"leaf{len(masks_of)}:")
    if state:
        lines += [
            '  %kept = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)',
            "  %low = extractvalue { i32, i32 } %kept, 0",
            f"  %needed = and i32 %low, {state}",
            f"  %enough = icmp eq i32 %needed, {state}",
            "  ret i1 %enough",
        ]
    else:
        lines.append("  ret i1 true")
    return "\n".join([*lines, "no:", "  ret i1 false", "}", ""])


_REGISTERS = "{ i32, i32, i32, i32 }"


def _cpuid_call(result: str, leaf: int, subleaf: int) -> list[str]:
    constraint = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
    return [f'  %{result} = call {_REGISTERS} asm sideeffect "cpuid", "{constraint}"(i32 {_signed(leaf)}, i32 {subleaf})']


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word
