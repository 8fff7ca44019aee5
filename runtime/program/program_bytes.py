"""Write programs as bytes and read them back; the only module that knows the layout.

    size: u32, little endian | header: JSON, ``size`` bytes | section | section | ...

The header holds the format version of the IR (``ir``), the length of each section (``sections``), and fields of the target.
The entries of the kernel cache (``runtime.program.serialize`` for the CPU, ``runtime.cuda.program.serialize``) and the files
of exports for a device have this layout. A program is written as text without source locations; records are written as JSON by
their names.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pullback.ir.core.structure import Block, Function
from pullback.ir.core.types import DTYPES, DType
from pullback.ir.text import VERSION, canonical, parse_function, print_function

SIZE = struct.Struct("<I")
T = TypeVar("T")


class Unreadable(ValueError):
    """Raised for bytes that are no program of this version."""


def pack(fields: Mapping[str, Any], sections: Sequence[bytes]) -> bytes:
    """Return a header with these fields followed by the sections. Raises TypeError for fields that JSON cannot hold."""
    header = json.dumps({**fields, "ir": VERSION, "sections": [len(s) for s in sections]}, separators=(",", ":")).encode()
    return b"".join([SIZE.pack(len(header)), header, *sections])


def header_of(payload: bytes) -> Mapping[str, Any]:
    """Return the header. Raises Unreadable."""
    try:
        header = json.loads(payload[SIZE.size : _header_end(payload)])
    except ValueError as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    if not isinstance(header, dict):
        raise Unreadable("its header is no JSON object")
    return header


def unpack(payload: bytes) -> tuple[Mapping[str, Any], list[bytes]]:
    """Return the header and the sections. Raises Unreadable for another format version of the IR, and if sizes do not match."""
    header = header_of(payload)
    version = header.get("ir", 1)  # headers of version 1 do not say it
    if version != VERSION:
        raise Unreadable(f"its IR has format version {version}, this version reads {VERSION}")
    start, sections = _header_end(payload), []
    for length in header.get("sections", ()):
        sections.append(payload[start : start + length])
        start += length
    if start != len(payload):
        raise Unreadable("the sizes do not add up")
    return header, sections


def _header_end(payload: bytes) -> int:
    try:
        (size,) = SIZE.unpack_from(payload)
    except struct.error as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    return SIZE.size + int(size)


def read(payload: bytes, decode: Callable[[Mapping[str, Any], list[bytes]], T]) -> T:
    """Return ``decode(header, sections)``. Any exception that it raises is raised as Unreadable."""
    try:
        return decode(*unpack(payload))
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


# programs


def text_of(function: Function) -> str:
    """Return the text of a function without source locations. Raises ValueError if it does not parse back to the same
    function."""
    bare = replace(function, body=without_locations(function.body))
    text = print_function(bare)
    if canonical(parse_function(text)) != canonical(bare):
        raise ValueError("the text of the program gives another program")
    return text


def program_text(payload: bytes) -> str:
    """Return the IR of a program in such bytes. Raises Unreadable."""
    header = header_of(payload)
    if "program" not in header:
        raise Unreadable("it holds no program")
    return str(header["program"])


def without_locations(block: Block) -> Block:
    """Return the block without the source locations of its launches' failures."""
    return with_locations(block, itertools.repeat(""))


def with_locations(block: Block, locations: Iterator[str]) -> Block:
    """Return the block with these source locations of its launches' failures, in order."""
    instructions = []
    for i in block.instructions:
        if "failures" in i.params:
            failures = tuple((*failure[:2], next(locations)) for failure in i.params["failures"])
            i = replace(i, params={**i.params, "failures": failures})
        if i.regions:
            i = replace(i, regions=tuple(with_locations(region, locations) for region in i.regions))
        instructions.append(i)
    return replace(block, instructions=tuple(instructions))


def locations_of(block: Block) -> Iterator[str]:
    """Yield the source locations of the failures of a block's launches, in order."""
    for i in block.instructions:
        yield from (failure[2] for failure in i.params.get("failures", ()))
        for region in i.regions:
            yield from locations_of(region)


# records


def record_data(value: Any, records: Mapping[str, type]) -> Any:
    """Return a value as JSON: dtypes and dataclasses in ``records`` by name, tuples as lists. Raises TypeError for any other."""
    if isinstance(value, DType):
        return {"dtype": value.name}
    if dataclasses.is_dataclass(value) and type(value).__name__ in records:
        fields = {f.name: record_data(getattr(value, f.name), records) for f in dataclasses.fields(value)}
        return {"record": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return [record_data(each, records) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a program with a {type(value).__name__} cannot be serialised")


def record_of(data: Any, records: Mapping[str, type]) -> Any:
    """Return the value of such JSON."""
    if isinstance(data, list):
        return tuple(record_of(each, records) for each in data)
    if isinstance(data, dict) and "dtype" in data:
        return DTYPES[data["dtype"]]
    if isinstance(data, dict):
        return records[data["record"]](**{name: record_of(each, records) for name, each in data["fields"].items()})
    return data
