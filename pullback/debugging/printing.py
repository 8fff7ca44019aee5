"""Implement ``pb.print`` and ``pb.print_grad``, which print each time a transformed function runs."""

from __future__ import annotations

import re
from string import Formatter
from typing import Any, TypeVar

import numpy as np

from pullback.checking.control_flow_reference import is_silent
from pullback.ir.ops.control.host import show
from pullback.tracer import TracedArray, current, emit, flatten, rebuild, user_loc
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.tree import Identity
from pullback.tracer.user_code.source import shown

T = TypeVar("T")


def print(*values: Any, sep: str = " ", end: str = "\n", **fields: Any) -> None:
    """Print values as the builtin does, each time the transformed function runs.

    In a gradient the forward values are printed, once; prints are in program order. Nothing else in the program changes: neither
    its results nor its residuals. In a plain NumPy run it prints at once. The builtin ``print`` also prints at each call. Under
    `vmap`, where it prints for each row, this function prints whole arrays, once.

    Parameters
    ----------
    *values : object
        The values. With keyword arguments there is one: a format string, as in ``str.format``; the format of an array applies to
        its elements.
    sep : str, optional
        The text between values.
    end : str, optional
        The text after the last value.
    **fields : object
        The values of the fields of the format string.

    Raises
    ------
    TypeError
        For an invalid format string.
    Exception
        What ``str.format`` raises, and from the call what writing to ``sys.stdout`` raises.

    See Also
    --------
    print_grad : Prints cotangents.

    Examples
    --------
    >>> @pb.jit
    ... def f(x):
    ...     pb.print("the norm of x is {n:.2f}", n=np.sqrt(np.sum(x * x)))
    ...     return 2 * x
    >>> f(np.array([3.0, 4.0]))
    the norm of x is 5.00
    array([6., 8.])
    """
    page = _PrintTemplate()
    if fields:
        if len(values) != 1 or not isinstance(values[0], str):
            raise TypeError("pb.print with keyword arguments takes one format string before them")
        text = page.formatted(values[0], fields)
    else:
        text = sep.join([page.plain(v) for v in values])
    text += _escaped(end)
    if current() is None:
        if is_silent():
            return
        show(*page.operands, text=text, scalars=[""] * len(page.operands))
    else:
        emit("print", *page.operands, text=text, scalars=[x.weak for x in page.operands])


def print_grad(x: T, label: str = "") -> T:
    """Return ``x`` itself; where a gradient is taken through it, print the cotangent that arrives at it.

    The cotangent is the derivative of the differentiated result by ``x``. Where nothing is differentiated, nothing is printed;
    each further order of differentiation prints its own cotangent.

    Parameters
    ----------
    x : array, number or container of them
        The value; each array of floats is printed separately.
    label : str, optional
        The text before the cotangent; if it is empty, the user's source line.

    Returns
    -------
    array, number or container of them
        The same value.

    See Also
    --------
    print : Prints values.

    Examples
    --------
    >>> pb.grad(lambda x: np.sum(pb.print_grad(x**2, "square") * 3))(np.array([1.0, 2.0]))
    square: [3. 3.]
    array([ 6., 12.])
    """
    if current() is None:
        return x
    loc = user_loc()
    text = _escaped(label or f"cotangent at {shown(loc.file)}:{loc.line}") + ": {0}\n"
    leaves, tree = flatten(x, key=Identity)
    tapped: T = rebuild(tree, [_tap(leaf, text) for leaf in leaves])
    return tapped


def _tap(leaf: Any, text: str) -> Any:
    if not isinstance(leaf, TracedArray) or leaf.dtype.kind in "iub":
        return leaf
    return emit("cotangent_tap", as_traced(leaf), weak=leaf.weak, text=text)


class _PrintTemplate:
    """Builds the text of one print, with a numbered field for each value that is known only when the program runs."""

    def __init__(self) -> None:
        self.operands: list[Any] = []

    def plain(self, value: Any) -> str:
        """Return the text of a value as ``str`` shows it."""
        if self.is_operand(value):
            return f"{{{self.add_operand(value)}}}"
        if isinstance(value, str):
            return _escaped(value)
        return self.inside(value, str)

    def inside(self, value: Any, shown: Any) -> str:
        """Return the text of a value shown by ``str`` or ``repr``, with fields for the arrays inside."""
        leaves, tree = flatten(value, key=Identity)
        if not any(map(self.is_operand, leaves)):
            return _escaped(shown(value))
        marked = [_Mark(self.add_operand(x)) if self.is_operand(x) else x for x in leaves]
        return re.sub("\ue000(\\d+)\ue001", r"{\1!r}", _escaped(shown(rebuild(tree, marked))))

    def formatted(self, text: str, fields: dict[str, Any]) -> str:
        """Return a format string with its named fields filled in. Raises TypeError for a field without a name."""
        formatter, parts = Formatter(), []
        for literal, name, spec, conversion in formatter.parse(text):
            parts.append(_escaped(literal))
            if name is None:
                continue
            if not name or name[0].isdigit():
                raise TypeError('the fields of pb.print have names: pb.print("{loss:.3f}", loss=loss)')
            value, _ = formatter.get_field(name, (), fields)
            spec = formatter.vformat(spec or "", (), fields)
            how = f"!{conversion}" if conversion else ""
            if self.is_operand(value):
                parts.append(f"{{{self.add_operand(value)}{how}{':' if spec else ''}{spec}}}")
            elif spec:
                parts.append(_escaped(format(formatter.convert_field(value, conversion), spec)))
            elif isinstance(value, str) and conversion != "r":
                parts.append(_escaped(value))
            else:
                parts.append(self.inside(value, repr if conversion == "r" else str))
        return "".join(parts)

    def is_operand(self, value: Any) -> bool:
        return isinstance(value, TracedArray) or (current() is None and isinstance(value, np.ndarray))

    def add_operand(self, value: Any) -> int:
        """Add an operand and return its index."""
        self.operands.append(value)
        return len(self.operands) - 1


class _Mark:
    """Stands for an operand while a container is formatted."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"\ue000{self.index}\ue001"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
