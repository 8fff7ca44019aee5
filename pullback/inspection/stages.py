"""The stages report: the text of every stage that a call goes through."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.inspection.program import program_text
from pullback.inspection.provenance import dissect
from pullback.ir.core.records import dataclass
from pullback.programs.call import Call
from pullback.programs.pipeline import SHARED_STAGES, TARGET_STAGES
from pullback.programs.pipeline import stages as texts_of
from pullback.programs.report import Report
from pullback.runtime.cuda import discovery as cuda_discovery
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.compile import disassembly

ARCHITECTURE = "sm_90"
"""The architecture for which GPU code is shown if there is no GPU."""


@dataclass(frozen=True)
class Translated:
    """The text of a stage that an external compiler derives from CUDA C, at the first access; ``arch``: see ``stages``."""

    stage: str
    source: str
    arch: str | None

    def text(self) -> str:
        """Return the text. Raises NoCompiler, CompileError, NoTool."""
        arch, compiler = self.arch or cuda_discovery.architecture() or ARCHITECTURE, cuda_compile.compiler()
        if self.stage == "ptx":
            return compiler.ptx(self.source, arch, cuda_compile.OPTIONS)
        return disassembly.sass(compiler.cubin(self.source, arch, cuda_compile.OPTIONS))


class Stages(Report, Mapping[str, str]):
    """Map the names of the stages, in order, to their texts.

    If this machine lacks the tools for a stage, its text is a comment that says so; see its method ``problem``.

    Attributes
    ----------
    function : str
        The function with its transforms.
    inputs : mapping of str to object
        The values of the program's parameters, by name.
    headline : str
        The first line of the text.

    See Also
    --------
    Report : What all reports have.

    Examples
    --------
    >>> list(pb.jit(lambda x: x + 1).stages(np.ones(3)))
    ['trace', 'grad', 'simplify', 'fuse', 'lower', 'schedule', 'program', 'llvm', 'asm']
    """

    __slots__ = ("_problems", "_texts", "function", "inputs")

    def __init__(self, function: str, texts: Mapping[str, str | Translated], inputs: Mapping[str, Any]) -> None:
        self.function = function
        self.inputs = dict(inputs)
        self._texts = dict(texts)
        self._problems: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            raise KeyError(f"there is no stage {name!r} for this device; there are {', '.join(self._texts)}")
        text = self._texts[name]
        if isinstance(text, Translated):
            try:
                text = text.text()
            except (cuda_compile.NoCompiler, cuda_compile.CompileError, disassembly.NoTool) as error:
                self._problems[name] = str(error)
                text = "".join(f"// {line}\n" for line in str(error).splitlines())
            self._texts[name] = text
        return text

    def problem(self, name: str) -> str | None:
        """Return why a stage has no text, or None."""
        self[name]
        return self._problems.get(name)

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
        return "".join(f"# stage: {name}\n{text}" for name, text in self.items()).rstrip("\n")

    def _repr_html_(self) -> str:
        parts = [f"<details><summary>{name}</summary><pre>{html.escape(text)}</pre></details>" for name, text in self.items()]
        return f"<p>{html.escape(self.headline)}</p>{''.join(parts)}"


def stages(call: Call, *, locations: bool = False, arch: str | None = None) -> Stages:
    """Return the stages of a call.

    ``locations``: include the user's file and line of each instruction. ``arch``: the architecture of ptx and sass, such as
    "sm_80"; by default that of the first GPU, otherwise sm_90.
    """
    traced = call.trace
    texts: dict[str, str | Translated] = {}
    texts |= texts_of(traced, call.leaves, call.device, call.over, locations=locations)
    if call.device == "cpu":
        anatomy = dissect(call)
        texts["program"] = texts["lower"] if anatomy is None else program_text(anatomy, locations)
        order = (*SHARED_STAGES, *TARGET_STAGES["cpu"])
        texts = {name: texts[name] for name in order if name in texts}
    elif isinstance(source := texts.get("cuda"), str):
        texts |= {stage: Translated(stage, source, arch) for stage in ("ptx", "sass")}
    values = traced.arguments(call.leaves) or []
    parameters = traced.function.parameters
    inputs = {p.name: np.asarray(v, p.type.dtype.numpy) for p, v in zip(parameters, values)}
    return Stages(call.title, texts, inputs)
