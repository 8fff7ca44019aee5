"""Reports on a call of a transformed function: stages, reasons, residuals, memory, cost and time.

The report classes are exported here and imported at first use. The functions, named like their modules, are in ``reports``.
"""

from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import names_later

if TYPE_CHECKING:
    from pullback.inspection.reports import (
        ArgumentType,
        Buffer,
        Call,
        Change,
        Copied,
        Cost,
        Explanation,
        KernelCost,
        Limits,
        Memory,
        Profile,
        ProfiledStep,
        Read,
        ReadInput,
        Record,
        Report,
        Residual,
        Residuals,
        Stages,
        StaticNumber,
    )

__all__ = [
    "ArgumentType", "Buffer", "Call", "Change", "Copied", "Cost", "Explanation", "KernelCost", "Limits", "Memory",
    "Profile", "ProfiledStep", "Read", "ReadInput", "Record", "Report", "Residual", "Residuals", "Stages", "StaticNumber",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = names_later(globals(), {"pullback.inspection.reports": __all__})
