"""Parse arguments written as text: Python literals in which ``dtype[shape]`` stands for a random array, at any depth.

A random array depends only on its name, its type and the seed, so that a dump and a later run of its files agree.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import re
import shlex
import tokenize
import typing
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.types import DTYPES, ArrayType, DType, Type
from pullback.ir.shapes.extents import value_of
from pullback.tracer import parameters_of

_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(?!=)(.+)", re.DOTALL)
_ALIASES = {"float": "f64", "double": "f64", "single": "f32", "half": "f16", "int": "i64", "intp": "i64", "uint": "u64",
            "bool_": "bool", "complex": "c128"}  # fmt: skip
NAMES: Mapping[str, DType] = {
    **DTYPES,
    **{d.numpy.name: d for d in DTYPES.values() if d.name != "bf16"},
    "bfloat16": DTYPES["bf16"],
    **{alias: DTYPES[name] for alias, name in _ALIASES.items()},
}
"""The dtypes by their names in the IR and in NumPy."""

EXPECTED = "an array such as f64[64,32], a number, or another Python value was expected"


class UsageError(Exception):
    """A command line that cannot be understood."""


Maker = Callable[[DType, Sequence[int | str], str], Any]
"""Makes the value that stands for an array, from its dtype, extents and name."""


def parsed(function: Callable[..., Any], words: Sequence[str], make: int | Maker) -> tuple[list[Any], dict[str, Any]]:
    """Parse arguments from their texts.

    A bare word is a string if the parameter is one, by its default or its annotation: shells remove quotes. ``make``: the seed
    of random arrays, whose extents are numbers, or a function that makes other values. Raises UsageError.
    """
    parameters, strings = parameters_of(function), _strings(function)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}

    def value(text: str, name: str) -> Any:
        is_string = name in strings and text.isidentifier() and text not in ("None", "True", "False")
        return text if is_string else argument(text, name, make)

    for word in words:
        keyword = _KEYWORD.fullmatch(word.strip())
        if keyword is not None:
            kwargs[keyword[1]] = value(keyword[2], keyword[1])
        elif kwargs:
            raise UsageError(f"{word}: positions come before keywords")
        else:
            args.append(value(word, parameters.name(len(args))))
    return args, kwargs


def _strings(function: Callable[..., Any]) -> set[str]:
    """Return the parameters of a function whose default is a string, or whose annotation is ``str``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {p.name for p in parameters if isinstance(p.default, str) or p.annotation in (str, "str")}


def argument(text: str, name: str, make: int | Maker) -> Any:
    """Parse one argument from its text. Raises UsageError."""
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            tree = ast.parse(_with_shapes(text.strip()), mode="eval").body
    except (SyntaxError, ValueError, tokenize.TokenError):
        raise UsageError(f"{text}: {EXPECTED}{_quoting(text)}") from None
    try:
        return _Literal(text, make).value(tree, name)
    except MemoryError as error:
        raise UsageError(f"{text}: {error}") from None


def _with_shapes(text: str) -> str:
    """Return the text with each empty shape, as in ``f64[]``, replaced by valid Python, ``f64[()]``."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    triples = zip(tokens, tokens[1:], tokens[2:])
    ends = [b.end for a, b, c in triples if a.type == tokenize.NAME and (b.string, c.string) == ("[", "]")]
    lines = text.splitlines()
    for row, column in reversed(ends):
        lines[row - 1] = f"{lines[row - 1][:column]}(){lines[row - 1][column:]}"
    return "\n".join(lines)


def _quoting(text: str) -> str:
    """Return a hint for a word that looks like a string."""
    word = text.strip()
    return f"; for the string, write {_shell(repr(word))}" if re.fullmatch(r"[\w./ -]+", word) and word else ""


def _shell(text: str) -> str:
    return f'"{text}"' if "'" in text and '"' not in text and "$" not in text else shlex.quote(text)


class _Literal:
    def __init__(self, text: str, make: int | Maker) -> None:
        self.text = text
        self.make = make

    def value(self, node: ast.expr, name: str) -> Any:
        match node:
            case ast.Tuple(elts=items):
                return tuple(self.value(e, f"{name}_{k}") for k, e in enumerate(items))
            case ast.List(elts=items):
                return [self.value(e, f"{name}_{k}") for k, e in enumerate(items)]
            case ast.Dict(keys=keys, values=values):
                return {
                    (k := self.plain(key)): self.value(v, f"{name}_{k}")
                    for key, v in zip(keys, values, strict=True)
                    if key is not None or self.refuse()
                }
            case ast.Subscript(value=kind, slice=shape):
                return self.array(kind, shape, name)
            case ast.Name(id=word):
                return self.word(word)
        return self.plain(node)

    def plain(self, node: ast.expr | None) -> Any:
        """Evaluate a literal that contains no arrays."""
        try:
            return ast.literal_eval(node) if node is not None else self.refuse()
        except (ValueError, TypeError):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Name):
                return -self.word(node.operand.id)
            return self.refuse()

    def refuse(self, message: str = EXPECTED) -> Any:
        raise UsageError(message if message.startswith(f"{self.text.strip()} is ") else f"{self.text}: {message}")

    def word(self, word: str) -> float:
        if word in ("inf", "nan"):
            return float(word)
        if word in NAMES:
            return float(self.refuse(f"{word} is a dtype; write {word}[3] for a vector of 3, {word}[] for a scalar"))
        return float(self.refuse(f"{word} is no value; {EXPECTED}{_quoting(word)}"))

    def array(self, kind: ast.expr, shape: ast.expr, name: str) -> Any:
        word = ast.unparse(kind).removeprefix("np.").removeprefix("numpy.")
        if word not in NAMES:
            close = difflib.get_close_matches(word, NAMES, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(DTYPES)} and NumPy's names"
            self.refuse(f"there is no dtype {word}{hint}")
        extents = list(shape.elts) if isinstance(shape, ast.Tuple) else [shape]
        make = self.make
        numbers = [e.value for e in extents if isinstance(e, ast.Constant) and type(e.value) is int]
        if isinstance(make, int):
            if len(numbers) != len(extents):
                self.refuse(f"extents are numbers from 0 on, as in {word}[64,32]")
            return random_array(ArrayType(NAMES[word], tuple(numbers)), re.sub(r"\W", "_", name), make)
        valid = [*numbers, *(e.id for e in extents if isinstance(e, ast.Name))]
        if len(valid) != len(extents):
            self.refuse(f"extents are names and numbers from 0 on, as in {word}[n,32]")
        return make(NAMES[word], [e.id if isinstance(e, ast.Name) else e.value for e in extents], name)  # type: ignore[attr-defined]


def random_array(t: Type, name: str, seed: int, sizes: Mapping[str, int] | None = None) -> Any:
    """Return a random array, or a NumPy scalar, of a type: floats from 0.1 to 0.9, integers 0 and 1, bools."""
    shape = tuple(value_of(e, sizes or {}) for e in t.shape)
    rng = np.random.default_rng([seed, zlib.crc32(f"{name}:{t.dtype}".encode())])
    values: Any
    match t.dtype.kind:
        case "b" | "i" | "u":
            values = rng.integers(0, 2, shape)
        case "c":
            values = rng.uniform(0.1, 0.9, shape) + 1j * rng.uniform(0.1, 0.9, shape)
        case _:
            values = rng.uniform(0.1, 0.9, shape)
    array = np.asarray(values).astype(t.dtype.numpy)
    return array if shape else array[()]


def check_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], command: str) -> None:
    """Raise UsageError, with an example command, if a function does not take these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        guess = " ".join([command, *map(_shell_word, guessed(function, signature))])
        raise UsageError(f"{name}{signature}: {error}; for example\n  {guess}") from None


def _shell_word(spec: str) -> str:
    if re.fullmatch(r"[\w.,=\[\]-]+", spec):
        return spec
    keyword = _KEYWORD.fullmatch(spec)
    return f"{keyword[1]}={_shell(keyword[2])}" if keyword is not None else _shell(spec)


def guessed(function: Callable[..., Any], signature: inspect.Signature) -> list[str]:
    """Return a text for each required parameter, from its annotation or its name."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        hints = {}
    texts = []
    for parameter in signature.parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        text = _by_annotation(hints.get(parameter.name)) or _by_name(parameter.name)
        texts.append(f"{parameter.name}={text}" if parameter.kind is parameter.KEYWORD_ONLY else text)
    return texts


def _by_annotation(hint: Any) -> str:
    if hint in (int, float, bool, str):
        return {int: "3", float: "0.5", bool: "True", str: "'text'"}[hint]
    if typing.get_origin(hint) is typing.Literal:
        return repr(typing.get_args(hint)[0])
    stack, seen = [hint], 0
    while stack and seen < 32:
        candidate, seen = stack.pop(), seen + 1
        if isinstance(candidate, type) and issubclass(candidate, np.generic) and candidate.__name__ in NAMES:
            return f"{NAMES[candidate.__name__]}[3]"
        stack += typing.get_args(candidate)
    return ""


_BY_NAME = (
    (r"n|k|m|num_?\w*|n_\w+|count|steps|iterations|size|axis|order|degree|seed", "3"),
    (r"lam\w*|alpha|beta|gamma|sigma|mu|nu|rate|lr|eps\w*|scale|shift|tol|dt|step|weight_decay", "0.5"),
    (r"mode|method|kind|name|how", "'text'"),
    (r"params|parameters|weights", "{'w': f64[3], 'b': f64[]}"),
    (r"[A-Z]\w?|matrix", "f64[4,3]"),
)


def _by_name(name: str) -> str:
    return next((text for pattern, text in _BY_NAME if re.fullmatch(pattern, name)), "f64[3]")
