"""Objects with respect to whose attributes a function is differentiated: while it is traced in the region of the gradient, it
reads the region's parameters in place of the floats that they have, and nothing else about the objects is other than outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pullback.tracer.arrays.object_results import is_object_result
from pullback.tracer.arrays.traced import UNREAD, Assigned, TracedArray
from pullback.tracer.arrays.tree import LEAF, Identity, TreeDef, bare, flatten
from pullback.tracer.names.proxies import OutsideObject
from pullback.tracer.transforms.container_arguments import ContainerArguments
from pullback.tracer.transforms.region import Region, enter_differentiated
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import attribute_names


def is_differentiable_object(value: Any) -> bool:
    """Return whether a value is an object of which the attributes can be differentiated: it stands for one outside, or the traced
    function made it."""
    return issubclass(type(value), OutsideObject) or is_object_result(value)


@contextmanager
def _with_attributes(instance: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Make other values those of attributes of an object that the function made in this context."""
    before = {name: getattr(instance, name) for name in attributes}
    for name, value in attributes.items():
        object.__setattr__(instance, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if getattr(instance, name, None) is attributes[name]:
                object.__setattr__(instance, name, value)


class DifferentiatedArguments:
    """The arguments with respect to which a function is differentiated, in a region."""

    def __init__(self, region: Region, containers: ContainerArguments) -> None:
        self._region, self._containers = region, containers
        self._objects: dict[int, tuple[Any, TreeDef | None, list[int]]] = {}
        self._replaced: list[tuple[Any, dict[str, Any]]] = []

    def entered(self, value: Any, label: str) -> tuple[Any, TreeDef, list[int]]:
        """Return what stands for a value in the region, the structure of its gradient, and, for each leaf of that, the operand of
        the region with respect to which it is the derivative."""
        leaves, tree = flatten(value)
        parameters: list[TracedArray] = []
        operands: list[int] = []
        structure = self._structure(tree, iter(leaves), label, parameters, operands)
        return self._containers.copied(value, tree, parameters, label), structure, operands

    def _structure(
        self, tree: TreeDef, leaves: Iterator[Any], label: str, parameters: list[TracedArray], operands: list[int]
    ) -> TreeDef:  # fmt: skip
        """Return the structure of the gradient by a value of a structure; append its parameters and the indices of operands."""
        if tree.kind == "leaf":
            operands.append(len(self._region.operands))
            parameters.append(enter_differentiated(self._region, next(leaves), label))
            return LEAF
        if tree.kind == "appended" or (tree.kind == "static" and isinstance(tree.data, Assigned)):
            UNREAD.refuse()  # so that the function is traced with the contents, which are differentiated
        if tree.kind == "static" and is_differentiable_object(tree.data):
            return self._object(tree.data, label, operands)
        if tree.kind == "labelled":
            return self._structure(tree.children[0], leaves, label, parameters, operands)
        step = ".{}" if tree.kind in ("namedtuple", "dataclass") else "[{!r}]"
        children = [
            self._structure(child, leaves, f"{label}{step.format(key)}", parameters, operands)
            for key, child in zip(tree.keys, tree.children, strict=False)
        ]
        return bare(TreeDef(tree.kind, tree.type, tree.data, tree.key[2], children))

    def _object(self, stand_in: Any, label: str, operands: list[int]) -> TreeDef:
        """Return the structure of the gradient by an object: an object of its class."""
        known = self._objects.get(id(stand_in))
        if known is not None:
            if known[1] is None:
                raise TraceError(f"argument {label} is an object that is in itself, and has no gradient; pass what it holds")
            operands += known[2]
            return known[1]
        own: list[int] = []
        self._objects[id(stand_in)] = stand_in, None, own
        is_outside = issubclass(type(stand_in), OutsideObject)
        if is_outside:
            attributes = OutsideObject.attributes(stand_in)
        else:
            attributes = {name: getattr(stand_in, name) for name in attribute_names(stand_in)}
        replaced, children = {}, []
        for name, value in attributes.items():
            with self._outside():
                replaced[name], child, inside = self.entered(value, f"{label}.{name}")
            if child.kind == "static" and is_outside:
                outside = OutsideObject.as_outside(stand_in, name, value)
                child = TreeDef("static", None, outside, Identity(outside))
            children.append(child)
            own += inside
        self._replaced.append((stand_in, replaced))
        names = tuple(attributes)
        kind = OutsideObject.made_class(stand_in) if is_outside else type(stand_in)
        structure = TreeDef("dataclass", kind, names, names, children)
        self._objects[id(stand_in)] = stand_in, structure, own
        operands += own
        return structure

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Note in this context that the containers that are copied are reached through objects, which blocks do not search."""
        stores = self._containers.containers
        before, stores.are_outside = stores.are_outside, True
        try:
            yield
        finally:
            stores.are_outside = before

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Give the objects the parameters of the region in this context."""
        with ExitStack() as stack:
            for stand_in, attributes in self._replaced:
                is_outside = issubclass(type(stand_in), OutsideObject)
                replaced = OutsideObject.with_attributes if is_outside else _with_attributes
                stack.enter_context(replaced(stand_in, attributes))
            yield
