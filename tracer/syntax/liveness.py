"""The variables of a function that are read after each of its statements, before they are bound anew."""

from __future__ import annotations

import ast

from pullback.tracer.syntax.scopes import SCOPES, bound_names, own_nodes, parameters, reads


class Liveness:
    """The names that are read later, before they are bound anew, at each point of a function.

    ``after``: those after each statement, by its id; ``heads``: those where an iteration of a loop starts; ``entry``: those where
    the function starts. ``captured``: the names that inner functions read. ``raising``: those that are read where an exception of
    the statements at which the analysis is may be handled.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.after: dict[int, set[str]] = {}
        self.heads: dict[int, set[str]] = {}
        self.raising: set[str] = set()
        inner = [n for n in own_nodes(function.body) if isinstance(n, SCOPES)]
        self.captured = set(reads(inner))
        self.entry = self.block(function.body, set(), set(), set())

    def block(self, statements: list[ast.stmt], out: set[str], left: set[str], following: set[str]) -> set[str]:
        """Return what is live before statements. ``out``: after them; ``left`` and ``following``: after ``break`` and
        ``continue``."""
        for s in reversed(statements):
            self.after[id(s)] = self.after.get(id(s), set()) | out | self.captured | self.raising
            out = self.statement(s, out, left, following) | self.raising
        return out

    def statement(self, s: ast.stmt, out: set[str], left: set[str], following: set[str]) -> set[str]:
        """Return what is live before a statement; parameters as of ``block``."""
        match s:
            case ast.If(test=test, body=body, orelse=orelse):
                return set(reads([test])) | self.block(body, out, left, following) | self.block(orelse, out, left, following)
            case ast.While() | ast.For():
                return self.loop(s, out, left, following)
            case ast.Break():
                return left
            case ast.Continue():
                return following
            case ast.Return() | ast.Raise():
                return set(reads([s]))
            case ast.AugAssign() | ast.Delete():
                return out | set(reads([s])) | set(bound_names([s]))
            case ast.Assign() | ast.AnnAssign(value=ast.expr()):
                return (out - set(bound_names([s]))) | set(reads([s]))
            case ast.With() | ast.AsyncWith():
                # A context manager may suppress an exception of its body.
                inside = self.guarded(s.body, out, left, following, out)
                return inside | set(reads(s.items)) | (out - set(bound_names(s.items)))
            case ast.Try() | ast.TryStar():
                return self.try_statement(s, out, left, following)
            case ast.Match():
                sides = [self.block(c.body, out, left, following) - set(bound_names([c.pattern])) for c in s.cases]
                tests = [c.pattern for c in s.cases], [c.guard for c in s.cases if c.guard is not None]
                return out.union(*sides, reads([s.subject, *tests[0], *tests[1]]))
        return out | set(reads([s]))

    def try_statement(self, s: ast.Try | ast.TryStar, out: set[str], left: set[str], following: set[str]) -> set[str]:
        """Return what is live before a ``try`` statement; parameters as of ``block``."""
        last = set(reads(s.finalbody))
        end = self.block(s.finalbody, out, left, following) | last
        left, following = left | last, following | last
        handled = last.union(*(self.guarded(h.body, end, left, following, last) - {h.name or ""} for h in s.handlers))
        handled |= set(reads([h.type for h in s.handlers if h.type is not None]))
        after_body = self.guarded(s.orelse, end, left, following, last)
        return self.guarded(s.body, after_body, left, following, handled)

    def guarded(
        self, body: list[ast.stmt], out: set[str], left: set[str], following: set[str], raising: set[str]
    ) -> set[str]:  # fmt: skip
        """Return what is live before statements that an exception may leave to where the names ``raising`` are live."""
        before = self.raising
        self.raising = before | raising
        result = self.block(body, out, left, following) | self.raising
        self.raising = before
        return result

    def loop(self, s: ast.While | ast.For, out: set[str], left: set[str], following: set[str]) -> set[str]:
        """Return what is live before a loop; parameters as of ``block``."""
        after_all = self.block(s.orelse, out, left, following)
        head: set[str] = set()
        while True:
            inside = self.block(s.body, head | after_all, out, head | after_all)
            bound = set(bound_names([s.target])) if isinstance(s, ast.For) else set()
            own = set(reads([s.target] if isinstance(s, ast.For) else [s.test]))
            new = head | (inside - bound) | own | after_all
            if new == head:
                break
            head = new
        self.heads[id(s)] = head
        return head | set(reads([s.iter]) if isinstance(s, ast.For) else ())


    def temporaries(self, loop: ast.For | ast.While) -> set[str]:
        """Return the variables whose values neither go from one iteration of a loop to the next nor out of it: every path binds
        them before it reads them.

            for i in x:
                if i > 0:
                    d = x[i] - x[i - 1]     d and i, but not total
                    total = total + d * d
        """
        target = [loop.target] if isinstance(loop, ast.For) else [loop.test]
        return set(bound_names([*target, *loop.body])) - self.heads[id(loop)] - self.after[id(loop)]


def maybe_unbound(function: ast.FunctionDef, liveness: Liveness) -> set[str]:
    """Return the variables that a path may read unbound: live where the function starts, and not ones that are deleted."""
    deleted = {n.id for n in own_nodes(function.body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
    return liveness.entry - set(parameters(function)) - deleted
