"""The report classes and functions on a call, gathered in one module."""

from pullback.inspection.copies import Copied
from pullback.inspection.cost import Cost, KernelCost, cost
from pullback.inspection.explain import Change, Explanation, Read, StaticNumber, explain, why_traced
from pullback.inspection.machine_limits import Limits, limits
from pullback.inspection.memory import Buffer, Memory, memory
from pullback.inspection.profile import Profile, ProfiledStep, profile
from pullback.inspection.residuals import ReadInput, Residual, Residuals, residuals
from pullback.inspection.stages import Stages, stages
from pullback.programs.argument_types import ArgumentType, arguments_of
from pullback.programs.call import Call
from pullback.programs.compile_record import Record, Recorder
from pullback.programs.report import Report

__all__ = [
    "ArgumentType", "Buffer", "Call", "Change", "Copied", "Cost", "Explanation", "KernelCost", "Limits", "Memory",
    "Profile", "ProfiledStep", "Read", "ReadInput", "Record", "Recorder", "Report", "Residual", "Residuals", "Stages",
    "StaticNumber",
    "arguments_of", "cost", "explain", "limits", "memory", "profile", "residuals", "stages",
    "why_traced",
]  # fmt: skip
