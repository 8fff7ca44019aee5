"""The functions around routines of BLAS and LAPACK, as LLVM IR text: the library runs on one thread between them."""

from __future__ import annotations

from pullback.runtime.threads.state import at
from pullback.runtime.threads.worker_loop import SPINS_BETWEEN


def source() -> str:
    """Return the functions ``enter`` and ``leave`` around such routines."""
    return f"""
define internal void @hold(ptr %state) nounwind {{
entry:
  {at("guard", "guard")}
  br label %try
try:
  %pair = cmpxchg ptr %guard, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %done, label %again
again:
  call void @pause(ptr %state, i64 {SPINS_BETWEEN - 1}, i1 false)
  br label %try
done:
  ret void
}}

define internal void @unhold(ptr %state) nounwind {{
  {at("guard", "guard")}
  store atomic i64 0, ptr %guard release, align 8
  ret void
}}
{_change("enter", "add", "%users", SET_ONE_THREAD)}{_change("leave", "sub", "%now", RESTORE_THREADS)}"""


SET_ONE_THREAD = """%before = call i32 %get()
  %wide = sext i32 %before to i64
  store i64 %wide, ptr %before.at
  call void %function(i32 1)"""
"""Save the library's number of threads and set it to 1."""
RESTORE_THREADS = """%before = load i64, ptr %before.at
  %narrow = trunc i64 %before to i32
  call void %function(i32 %narrow)"""
"""Restore the library's number of threads."""


def _change(name: str, step: str, last: str, change: str) -> str:
    """Return a function that updates the count of callers inside by ``step``, and runs ``change`` for the first or the last of
    them."""
    return f"""
define void @pullback_crew_{name}(ptr %state) nounwind {{
entry:
  {at("get.at", "blas_get")}
  %get = load ptr, ptr %get.at
  %known = icmp ne ptr %get, null
  br i1 %known, label %count, label %done
count:
  call void @hold(ptr %state)
  {at("users.at", "users")}
  %users = load i64, ptr %users.at
  %now = {step} i64 %users, 1
  store i64 %now, ptr %users.at
  %only = icmp eq i64 {last}, 0
  br i1 %only, label %set, label %out
set:
  {at("before.at", "blas_before")}
  {at("set.at", "blas_set")}
  %function = load ptr, ptr %set.at
  {change}
  br label %out
out:
  call void @unhold(ptr %state)
  br label %done
done:
  ret void
}}
"""
