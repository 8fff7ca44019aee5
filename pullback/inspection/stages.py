"""stages: the text of every stage that a call goes through."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.inspection.anatomy import dissect
from pullback.inspection.call import Call
from pullback.inspection.program import program_text
from pullback.inspection.report import Report
from pullback.pipeline import SHARED_STAGES, TARGET_STAGES
from pullback.pipeline import stages as texts_of


class Stages(Report, Mapping[str, str]):
    """The texts by the names of the stages, in order. ``inputs``: the values of the program's parameters, by name."""

    __slots__ = ("_texts", "function", "inputs")

    def __init__(self, function: str, texts: Mapping[str, str], inputs: Mapping[str, Any]) -> None:
        self.function = function
        self.inputs = dict(inputs)
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            raise KeyError(f"there is no stage {name!r} for this device; there are {', '.join(self._texts)}")
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return dict(self) == (dict(other) if isinstance(other, Mapping) else other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def headline(self) -> str:
        """The function and the names of its stages."""
        return f"{self.function}: {', '.join(self._texts)}"

    def __str__(self) -> str:
        return "".join(f"# stage: {name}\n{text}" for name, text in self._texts.items()).rstrip("\n")

    def _repr_html_(self) -> str:
        parts = [
            f"<details><summary>{name}</summary><pre>{html.escape(text)}</pre></details>" for name, text in self._texts.items()
        ]
        return f"<p>{html.escape(self.headline)}</p>{''.join(parts)}"


def stages(call: Call, *, locations: bool = False) -> Stages:
    """The stages of a call. ``locations``: with the user's file and line of each instruction."""
    traced = call.trace
    texts = texts_of(traced, call.leaves, call.device, call.over, locations=locations)
    if call.device == "cpu":
        anatomy = dissect(call)
        texts["program"] = texts["lower"] if anatomy is None else program_text(anatomy, locations)
        order = (*SHARED_STAGES, *TARGET_STAGES["cpu"])
        texts = {name: texts[name] for name in order if name in texts}
    values = traced.arguments(call.leaves) or []
    parameters = traced.function.parameters
    inputs = {p.name: np.asarray(v, p.type.dtype.numpy) for p, v in zip(parameters, values)}
    return Stages(call.title, texts, inputs)
