"""Rewrite control flow as calls of operators, which look at the values that decide it.

    if c:                      def then():
        x = x + 1                  nonlocal x; x = x + 1
    else:             ->       def orelse():
        x = 0                      nonlocal x; x = 0
                               if_(c, then, orelse, ("x",))

A block becomes a function inside the user's function, whose variables it shares: the cells of these variables are how an
operator reads, sets and compares them. A block that leaves the statement around it, by ``return``, ``break`` or ``continue``,
returns a completion. The statements after a branch that may leave are a block as well, which both sides run:

    if c:                      def rest(): return return_(b)
        return a      ->       def then(): return return_(a)
    return b                   def orelse(): return rest()
                               return value(if_(c, then, orelse, ()))

Positions are kept, so that errors, warnings and profiles show the user's lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence, Set
from typing import Any, cast

from pullback.tracer.syntax import texts
from pullback.tracer.syntax.list_returns import end_loops_before_returns
from pullback.tracer.syntax.liveness import Liveness, maybe_unbound
from pullback.tracer.syntax.patterns import Patterns
from pullback.tracer.syntax.scopes import (
    COMPREHENSIONS,
    SCOPES,
    bound_names,
    declared,
    falls_through,
    leaves,
    own_nodes,
    parameters,
)
from pullback.tracer.syntax.sole_names import sole_names
from pullback.tracer.syntax.table import PREFIX
from pullback.tracer.syntax.texts import makes_text

LOWERED = (ast.If, ast.While, ast.For, ast.Assert, ast.IfExp, ast.BoolOp, ast.Match, ast.Try)
ITEM = PREFIX + "item"
"""The parameter of the body of a ``for`` loop."""
MOST_FORKS = 3
"""The number of branches after a branch, each with sides that may leave or not, from which on what follows is traced once: traced
in both sides of each, it would be traced ``2**k`` times."""
ITEMS = PREFIX + "iterable"
"""The parameter of what goes over the elements of a generator expression."""
_OUT = PREFIX + "out"
"""The list that a comprehension fills."""
CONTAINERS = ("list", "deque", "set", "dict", "Counter", "defaultdict", "OrderedDict")
"""The names of classes whose calls make containers of the traced function."""
_CONSUMERS = ("sum", "min", "max", "list", "set", "dict", "sorted", "Counter")
_SEARCHES = ("next", "any", "all")
"""The names of functions that go over a generator up to an element that decides."""
_EXTREMES = ("max", "min")
_SEQUENCES = (
    "range", "prange", "xrange", "enumerate", "zip", "reversed", "pairwise", "product", "combinations",
    "combinations_with_replacement", "permutations", "ndindex", "ndenumerate", "count", "broadcast",
    "accumulate",
)  # fmt: skip
"""The names of functions that return what loops go over."""
_COMPUTED = (ast.Name, ast.Attribute, ast.BinOp, ast.Subscript, ast.Call, ast.IfExp)
"""The expressions of indices and keys that values may decide."""
_SEQUENCE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
"""Expressions that may be tuples or lists, besides displays."""
_SUPPRESSING = ("suppress",)
"""The names of context managers that suppress exceptions."""
_SEES_SCOPE = ("super", "locals", "vars", "dir", "eval", "exec")


class _Finished(ast.Return):
    """A ``return`` that is rewritten already. ``bound``: the statements of the block that it calls, which bind names;
    ``live``: the variables that are read after it and may be unbound; ``filled``: see ``_Body.filled``."""

    bound: Sequence[ast.AST] = ()
    live: Set[str] = frozenset()
    filled: Sequence[str] = ()


class Rewriter(ast.NodeTransformer):
    """Rewrites every function of a module that has control flow."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if node.name in texts.RETURN_TEXTS:
            texts.keep(own_nodes(node.body))
        if _is_rewritten(node):
            patterns = Patterns()
            node.body = [new for s in node.body for new in _listed(patterns.visit(s))]
            end_loops_before_returns(node)
            node.body = _Body(node).run()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        if _is_rewritten(node):
            node.body = ast.fix_missing_locations(_Expression().visit(node.body))
        return node


class Truths(ast.NodeTransformer):
    """Rewrites tests whether a value is the object True, False or that of a variable, and patterns of these objects and of
    classes, in functions whose control flow stays as it is."""

    def visit_Match(self, node: ast.Match) -> Any:
        patterns = (p for case in node.cases for p in ast.walk(case.pattern))
        if not any(isinstance(p, ast.MatchClass) or type(getattr(p, "value", None)) is bool for p in patterns):
            return self.generic_visit(node)
        branches = [self.visit(s) for s in _listed(Patterns().visit(node)) if s is not node]
        return branches or self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[other]) if not _is_object(other):
                names = name_texts([type(op).__name__])
                return ast.fix_missing_locations(call("compare", node, node.left, names, _deferred(other)))
        return node


def _is_object(node: ast.expr) -> bool:
    """Return whether an expression is a constant other than True and False, such as None."""
    return isinstance(node, ast.Constant) and not isinstance(node.value, bool)


def _listed(nodes: Any) -> list[ast.stmt]:
    return nodes if isinstance(nodes, list) else [nodes]


def _is_rewritten(node: ast.FunctionDef | ast.Lambda) -> bool:
    """Return whether a function has control flow, and no code that depends on the function in which it runs."""
    has_flow = False
    for inner in own_nodes(node.body if isinstance(node, ast.FunctionDef) else [node.body]):
        match inner:
            case ast.Yield() | ast.YieldFrom() | ast.Await() | ast.AsyncFor() | ast.AsyncWith() | ast.Name(id="__class__"):
                return False
            case ast.Call(func=ast.Name(id=name)) if name in _SEES_SCOPE:
                return False
            case ast.Try() if leaves(inner.finalbody):
                return False  # it drops the exception that is on its way
            case ast.Compare() if _is_operator(inner):
                has_flow = True
            case ast.Subscript(slice=part) if isinstance(part, _COMPUTED):
                has_flow = True
            case ast.UnaryOp(op=ast.Not()) | ast.List(ctx=ast.Load()) | ast.ListComp():
                has_flow = True
            case ast.Set() | ast.SetComp() | ast.DictComp():
                has_flow = True
            case ast.Dict() if _has_computed_keys(inner):
                has_flow = True
            case ast.Call() if _called_name(inner) in CONTAINERS:
                has_flow = True
            case ast.Call() if any(test(inner) for test in (_is_consumed, _is_search, _is_extreme)):
                has_flow = True
            case ast.JoinedStr() | ast.BinOp() | ast.Call() | ast.Raise() if makes_text(inner):
                has_flow = True
        has_flow = has_flow or isinstance(inner, LOWERED) or (isinstance(inner, ast.With) and _is_operation(inner))
    return has_flow


def _is_operator(node: ast.Compare) -> bool:
    """Return whether a comparison becomes a call of an operator: a chained one, a test of identity or membership, or one of what
    may be tuples or lists."""
    if len(node.ops) > 1 or isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
        return True
    sides = (node.left, *node.comparators)
    if any(isinstance(side, ast.Tuple | ast.List) for side in sides):
        return True
    return isinstance(node.ops[0], ast.Eq | ast.NotEq) and all(isinstance(side, _SEQUENCE) for side in sides)


class _Expression(ast.NodeTransformer):
    """Rewrites the expressions that choose what they evaluate, and the reads of the variables in ``maybe``, which may be unbound.
    The bodies of functions are rewritten by themselves. ``block`` returns the name of a function that evaluates an expression and
    binds variables of the function around it; None where no such function can be defined."""

    def __init__(self, maybe: Collection[str] = (), block: Callable[[ast.expr], ast.Name] | None = None) -> None:
        self.maybe, self.block = maybe, block

    def deferred(self, node: ast.expr) -> ast.expr:
        """Return a function without parameters that evaluates an expression."""
        return self.block(node) if self.block is not None and _binds(node) else _deferred(node)

    def is_fixed(self, *nodes: ast.expr) -> bool:
        """Return whether expressions bind names, which no function evaluates."""
        return _binds(*nodes) and (self.block is None or any(map(_binds_inside, nodes)))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.maybe or not isinstance(node.ctx, ast.Load):
            return node
        return call("read", node, node, ast.Constant(node.id))

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, SCOPES):
            return node
        return super().visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        if not makes_text(node):
            return node
        source = texts.source_of(node)
        self.generic_visit(node)
        return texts.joined(node, source, node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr):  # without values
            parts = (p.value for p in node.format_spec.values if isinstance(p, ast.Constant))
            node.format_spec = ast.copy_location(ast.Constant("".join(map(str, parts))), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        source = ast.Constant(ast.unparse(node)) if makes_text(node) else None
        self.generic_visit(node)
        return node if source is None else call("texted", node, source, ast.Constant("mod"), node.left, node.right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        source = ast.Constant(ast.unparse(node)) if makes_text(node) else None
        arguments = node.args if isinstance(node.func, ast.Attribute) else []
        displays = [a for a in arguments if isinstance(a, ast.List)]
        makes_container = _called_name(node) in CONTAINERS
        self.generic_visit(node)
        if _is_search(node):
            return _search(node)
        if _is_consumed(node):
            node.args[0] = call("comprehension", node.args[0], _deferred(node.args[0]), _filling(cast(Any, node.args[0])))
        if displays:
            node.args = [a.args[0] if isinstance(a, ast.Call) and a.args and a.args[0] in displays else a for a in node.args]
        if _is_extreme(node):
            result = call("extreme", node, node.func, *node.args)
            result.keywords = node.keywords
            return result
        if source is None:
            is_plain = len(node.args) < 2 and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
            if makes_container and is_plain:
                return call("new", node, node.func, *node.args)
            return node
        result = call("texted", node, source, *texts.text_function(node), *node.args)
        result.keywords = node.keywords
        return result

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        self.generic_visit(node)
        if isinstance(node.exc, ast.Call):
            raised = call("error", node.exc, node.exc.func, *node.exc.args)
            raised.keywords = node.exc.keywords
            node.exc = raised
        return node

    def visit_List(self, node: ast.List) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        if not any(isinstance(x, ast.Starred) for x in node.elts):
            return call("list", node, node)
        result = call("list", node, ast.copy_location(ast.List([], ast.Load()), node))
        for x in node.elts:
            part = x.value if isinstance(x, ast.Starred) else ast.copy_location(ast.List([x], ast.Load()), x)
            result = call("extended", x, result, part)
        return result

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        if _binds(node) or any(g.is_async for g in node.generators):
            return call("list", node, node)
        return call("comprehension", node, _deferred(node), _filling(node))

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        if _binds(node) or any(isinstance(e, ast.Starred) for e in node.elts):
            return node
        elements = ast.copy_location(ast.Tuple(node.elts, ast.Load()), node)
        return call("set", node, _deferred(node), _deferred(elements))

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        if not _has_computed_keys(node) or _binds(node):
            return node
        keys = cast("list[ast.expr]", node.keys)
        pairs: list[ast.expr] = [ast.copy_location(ast.Tuple([k, v], ast.Load()), k) for k, v in zip(keys, node.values)]
        return call("dict", node, _deferred(node), _deferred(ast.copy_location(ast.Tuple(pairs, ast.Load()), node)))

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self.generic_visit(node)
        if _binds(node) or any(g.is_async for g in node.generators):
            return node
        return call("set comprehension", node, _deferred(node), _filling(cast(Any, node)))

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        self.generic_visit(node)
        if _binds(node) or any(g.is_async for g in node.generators):
            return node
        pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node.key)
        pairs = ast.copy_location(ast.ListComp(pair, node.generators), node)
        return call("dict comprehension", node, _deferred(node), _filling(pairs))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        part = node.slice
        is_part = isinstance(part, ast.Slice) and any(isinstance(x, _COMPUTED) for x in (part.lower, part.upper))
        is_position = isinstance(part, ast.Tuple) and any(isinstance(x, _COMPUTED) for x in part.elts)
        is_position = is_position and not any(isinstance(x, ast.Slice | ast.Starred) for x in cast(ast.Tuple, part).elts)
        is_item = isinstance(node.ctx, ast.Load) and (is_part or is_position or isinstance(part, _COMPUTED))
        node.value = self.visit(node.value)
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self.index(x) for x in node.slice.elts]
        else:
            node.slice = self.index(node.slice)
        if is_item and isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            node.slice = call("slice", node, *(ast.copy_location(ast.Constant(None), node) if x is None else x for x in bounds))
        return call("element", node, node.value, node.slice) if is_item else node

    def index(self, node: ast.expr) -> ast.expr:
        """Return a rewritten index, of which a list stays one of Python's."""
        result: Any = self.generic_visit(node) if isinstance(node, ast.List) else self.visit(node)
        return cast(ast.expr, result)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = tested(node.test)
        self.generic_visit(node)
        if self.is_fixed(node.body, node.orelse):
            return node
        return call("choose", node, node.test, self.deferred(node.body), self.deferred(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if self.is_fixed(*node.values[1:]):
            return node
        name = "and" if isinstance(node.op, ast.And) else "or"
        return call(name, node, node.values[0], *map(self.deferred, node.values[1:]))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            node.operand = tested(node.operand)
        self.generic_visit(node)
        return call("not", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        is_operator = _is_operator(node)
        self.generic_visit(node)
        if not is_operator or self.is_fixed(*node.comparators):
            return node
        names: list[ast.expr] = [ast.Constant(type(op).__name__) for op in node.ops]
        return call("compare", node, node.left, ast.Tuple(names, ast.Load()), *map(self.deferred, node.comparators))


def _has_computed_keys(node: ast.Dict) -> bool:
    """Return whether the display of a dict has no items, or keys that values may decide."""
    texts = [isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys]
    return None not in node.keys and not (texts and all(texts))


def _is_operation(s: ast.stmt) -> bool:
    """Return whether a statement is the call of an operator: a branch, a loop, a ``try`` statement, or a ``with`` statement that
    something in it may leave, or after an exception."""
    if isinstance(s, ast.With):
        return leaves([s]) or any(isinstance(e, ast.Call) and _called_name(e) in _SUPPRESSING for e in _managers(s))
    return isinstance(s, ast.If | ast.While | ast.For | ast.Try)


def _managers(s: ast.With) -> list[ast.expr]:
    return [item.context_expr for item in s.items]


def _forks(s: ast.stmt) -> bool:
    """Return whether a statement is a branch of which both sides may leave and may not, so that both run what is after it."""
    return isinstance(s, ast.If) and leaves([s]) and falls_through(s.body) and falls_through(s.orelse)


def _binds(*nodes: ast.expr) -> bool:
    """Return whether expressions bind names of their function by ``:=``, which a function of their own would not."""
    return any(isinstance(n, ast.NamedExpr) for node in nodes for n in own_nodes([node]))


def _binds_inside(node: ast.expr) -> bool:
    """Return whether a comprehension inside an expression binds names of its function by ``:=``."""
    return any(isinstance(n, COMPREHENSIONS) and _binds(n) for n in own_nodes([node]))


def tested(node: ast.expr) -> ast.expr:
    """Return an expression of which only the truth counts: its operands of ``and`` and ``or`` as their truth."""
    if isinstance(node, ast.BoolOp):
        node.values = [v if isinstance(v, ast.BoolOp | ast.Compare) else call("truth", v, v) for v in map(tested, node.values)]
    return node


def _called_name(node: ast.Call) -> str:
    """Return the last name of what a call calls."""
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_consumed(node: ast.Call) -> bool:
    """Return whether a call consumes the items of a generator expression, all of them, as those of a list."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _CONSUMERS or not node.args:
        return False
    items = node.args[0]
    return isinstance(items, ast.GeneratorExp) and not _binds(items) and not any(g.is_async for g in items.generators)


def _is_extreme(node: ast.Call) -> bool:
    """Return whether a call is one of ``max`` or ``min`` with a key or a default."""
    is_named = isinstance(node.func, ast.Name) and node.func.id in _EXTREMES
    return is_named and bool(node.keywords) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)


def _is_search(node: ast.Call) -> bool:
    """Return whether a call goes over a generator expression up to an element that decides."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _SEARCHES or node.keywords:
        return False
    is_one = len(node.args) == 1 or (node.func.id == "next" and len(node.args) == 2)
    elements = node.args[0] if is_one else None
    return isinstance(elements, ast.GeneratorExp) and not _binds(elements) and not any(g.is_async for g in elements.generators)


def _search(node: ast.Call) -> ast.Call:
    """Return a call of ``next``, ``any`` or ``all`` as that of an operator, which is passed a function that goes over the
    elements by loops, and returns the one that decides.

        any(v > t for v in x)    ->    search(any, x, lambda xs: (v > t for v in xs), lambda xs: searched(xs, lambda item:
                                           [if_(v > t, lambda: return_(True), None, ()) for v in (item,)][0]))
    """
    elements, name = cast(ast.GeneratorExp, node.args[0]), cast(ast.Name, node.func).id
    at, first, none = elements.elt, elements.generators[0], ast.Constant(None)
    inner: ast.expr = call("return", at, at if name == "next" else ast.Constant(name == "any"))
    if name != "next":
        test = tested(at) if name == "any" else call("not", at, tested(at))
        inner = call("if", at, test, _deferred(ast.copy_location(inner, at)), none, ast.Tuple([], ast.Load()))
    source = first.iter
    first.iter = ast.copy_location(ast.Name(ITEMS, ast.Load()), source)
    for g in elements.generators[::-1]:
        for test in g.ifs[::-1]:
            inner = call("if", test, tested(test), _deferred(inner), none, ast.Tuple([], ast.Load()))
        item = ast.Tuple([ast.Name(ITEM, ast.Load())], ast.Load())
        bound = ast.copy_location(ast.ListComp(inner, [ast.comprehension(g.target, item, [], 0)]), g.target)
        ended = ast.copy_location(ast.Subscript(bound, ast.Constant(0), ast.Load()), g.target)
        body = ast.copy_location(ast.Lambda(_parameter(ITEM), ended), g.target)
        inner = call("searched", g.iter, _sequence(g.iter), body)
    scan = ast.copy_location(ast.Lambda(_parameter(ITEMS), inner), node)
    plain = ast.copy_location(ast.Lambda(_parameter(ITEMS), elements), node)
    return call("search", node, node.func, _sequence(source), plain, scan, *node.args[1:])


def _filling(node: ast.ListComp) -> ast.Lambda:
    """Return a function that appends what a comprehension makes to its argument, by loops that are calls of an operator.

        [f(v) for v in x if v > 0]    ->    lambda out: each(x, lambda item: [if_(v > 0, lambda: append(out, f(v)), None, ())
                                                                              for v in (item,)])
    """
    at = node.elt
    inner: ast.expr = call("append", at, ast.Name(_OUT, ast.Load()), at)
    for g in node.generators[::-1]:
        for test in g.ifs[::-1]:
            inner = call("if", test, tested(test), _deferred(inner), ast.Constant(None), ast.Tuple([], ast.Load()))
        items = ast.Tuple([ast.Name(ITEM, ast.Load())], ast.Load())
        bound = ast.ListComp(inner, [ast.comprehension(g.target, items, [], 0)])
        body = ast.copy_location(ast.Lambda(_parameter(ITEM), ast.copy_location(bound, g.target)), g.target)
        inner = call("each", g.iter, _sequence(g.iter), body)
    return ast.copy_location(ast.Lambda(_parameter(_OUT), inner), node)


def _parameter(name: str) -> ast.arguments:
    """Return the parameters of a function of one."""
    return ast.arguments(posonlyargs=[], args=[ast.arg(name)], kwonlyargs=[], kw_defaults=[], defaults=[])


def _sequence(node: ast.expr) -> ast.expr:
    """Return what a loop goes over with its calls of ``range``, ``enumerate``, ``zip`` and the like as calls of an operator,
    which are passed these functions, since the names may mean others."""
    if not isinstance(node, ast.Call) or _called_name(node) not in _SEQUENCES:
        return node
    items = call("items", node, node.func, *map(_sequence, node.args))
    items.keywords = node.keywords
    return items


def _deferred(node: ast.expr) -> ast.Lambda:
    """Return a function without parameters that evaluates an expression."""
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(arguments, node), node)


def call(name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
    """Return the call of an operator, at the position of a node."""
    return ast.copy_location(ast.Call(ast.Name(PREFIX + name, ast.Load()), list(arguments), []), at)


def name_texts(names: Sequence[str]) -> ast.Tuple:
    """Return a tuple of texts."""
    constants: list[ast.expr] = [ast.Constant(name) for name in names]
    return ast.Tuple(constants, ast.Load())


class _Body:
    """The body of one function. ``shared``: the names of its variables; ``globals`` and ``outer``: the names that it declares
    global and nonlocal; ``temporary``: the variables of each loop that are not carried; ``depth``: the number of ``with`` and
    ``try`` statements around what is rewritten."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.globals = declared(function, ast.Global)
        self.outer = declared(function, ast.Nonlocal)
        self.shared = {*bound_names(function.body), *parameters(function)} - self.globals
        loops = [n for n in own_nodes(function.body) if isinstance(n, ast.For | ast.While)]
        self.liveness = Liveness(function)
        self.temporary = {id(loop): self.liveness.temporaries(loop) - self.outer for loop in loops}
        self.sole = sole_names(function, self.liveness)
        self.maybe = (maybe_unbound(function, self.liveness) & self.shared) - self.outer
        self.count = 0
        self.depth = 0
        self.hoisted: list[ast.stmt] = []

    def run(self) -> list[ast.stmt]:
        """Return the rewritten body."""
        first = self.function.body[0]
        body = self.statements(self.function.body, is_block=False)
        unbound = sorted(self.shared - self.outer - set(parameters(self.function)))
        before: list[ast.stmt] = []
        if unbound:
            stores: list[ast.expr] = [ast.Name(name, ast.Store()) for name in unbound]
            before.append(ast.If(ast.Constant(False), [ast.Assign(stores, ast.Constant(None))], []))
        before += [ast.Global(sorted(self.globals))] if self.globals else []
        before += [ast.Nonlocal(sorted(self.outer))] if self.outer else []
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        body[int(is_text) : int(is_text)] = [ast.copy_location(s, first) for s in before]
        return [ast.fix_missing_locations(s) for s in body]

    def statements(self, statements: Sequence[ast.stmt], is_block: bool, is_guarded: bool = False) -> list[ast.stmt]:
        """Return rewritten statements. ``is_block``: they are in the function of a block, which returns completions;
        ``is_guarded``: they are in a ``match`` statement, a ``finally`` clause, or a ``with`` statement that nothing leaves,
        which the statements after it are not."""
        out: list[ast.stmt] = []
        for k, s in enumerate(statements):
            if not _is_operation(s):
                rewritten = self.simple(s, is_block)
                out += self.flushed()
                out.append(rewritten)
            elif not leaves([s]):
                operand = self.operation(s, (), out)
                out.append(ast.copy_location(ast.Expr(operand), s))
            elif is_guarded:
                operand = self.operation(s, (), out)
                out += self.propagated(operand, s, is_block)
            else:
                rest = statements[k + 1 :]
                is_shared = not isinstance(s, ast.If) or (_forks(s) and sum(map(_forks, rest)) >= MOST_FORKS)
                operand = self.operation(s, () if is_shared else rest, out)
                if is_shared:
                    stored = self.stored(rest)
                    live = self.listed(self.live(s, rest), self.filled(rest[-1], stored)) if rest and self.depth else []
                    operand = call("after", s, operand, self.block("rest", rest, s, out), self.names(stored, s), *live)
                out.append(self.left(operand, s, is_block))
                break
        return out

    def expression(self, node: Any) -> Any:
        """Return a rewritten expression, or a statement of which the expressions are rewritten. The functions that it calls are
        ``flushed`` before its statement."""
        return _Expression(self.maybe, self.hoist).visit(node)

    def hoist(self, node: ast.expr) -> ast.Name:
        """Return the name of a function that evaluates an expression, whose ``:=`` bind variables of this function."""
        self.count += 1
        title = f"{PREFIX}expression{self.count}"
        stored = self.stored([node])
        declarations: list[ast.stmt] = [ast.Nonlocal(stored)] if stored else []
        arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        returned = ast.copy_location(ast.Return(node), node)
        function = ast.FunctionDef(title, arguments, [*declarations, returned], [], None, None)
        if "type_params" in ast.FunctionDef._fields:
            function.type_params = []  # type: ignore[attr-defined]
        self.hoisted.append(ast.copy_location(function, node))
        return ast.copy_location(ast.Name(title, ast.Load()), node)

    def flushed(self) -> list[ast.stmt]:
        """Return the functions that the next statement calls."""
        result, self.hoisted = self.hoisted, []
        return result

    def simple(self, s: ast.stmt, is_block: bool) -> ast.stmt:
        """Return a rewritten statement that is no branch and no loop."""
        match s:
            case _Finished(value=value):
                return ast.copy_location(ast.Return(value), s)
            case ast.Return(value=value) if is_block:
                operand = ast.Constant(None) if value is None else self.expression(value)
                return ast.copy_location(ast.Return(call("return", s, operand)), s)
            case ast.Break() | ast.Continue() if is_block:
                name = "break" if isinstance(s, ast.Break) else "continue"
                return ast.copy_location(ast.Return(call(name, s)), s)
            case ast.Assert(test=test, msg=msg):
                message = [] if msg is None else [_deferred(self.expression(msg))]
                return ast.copy_location(ast.Expr(call("assert", s, self.expression(tested(test)), *message)), s)
            case ast.Global() | ast.Nonlocal():
                return ast.copy_location(ast.Pass(), s)
            case ast.Raise(exc=None):
                note = ast.copy_location(ast.Expr(call("raise again", s)), s)
                return ast.copy_location(ast.If(ast.copy_location(ast.Constant(True), s), [note, s], []), s)
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                if value is None:
                    return ast.copy_location(ast.Pass(), s)
                return ast.copy_location(ast.Assign([target], self.expression(value)), s)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value) if name in self.maybe:
                read = self.expression(ast.copy_location(ast.Name(name, ast.Load()), target))
                operands = [ast.Constant(type(op).__name__), read, self.expression(value)]
                return ast.copy_location(ast.Assign([target], call("augmented", s, *operands)), s)
            case ast.With() | ast.TryStar() | ast.Match():
                return self.enclosing(s, is_block)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return s
        rewritten: ast.stmt = self.expression(s)
        return rewritten

    def enclosing(self, s: Any, is_block: bool) -> ast.stmt:
        """Rewrite the statements inside a ``with``, ``try: ... except*`` or ``match`` statement, and return it."""
        for item in getattr(s, "items", ()):
            item.context_expr = self.expression(item.context_expr)
        if isinstance(s, ast.Match):
            s.subject = self.expression(s.subject)
        before = self.flushed()
        for inner in (s, *getattr(s, "handlers", ()), *getattr(s, "cases", ())):
            for part in ("body", "orelse", "finalbody"):
                if getattr(inner, part, None):
                    setattr(inner, part, self.statements(getattr(inner, part), is_block, is_guarded=True))
        for handler in getattr(s, "handlers", ()):
            handler.body.insert(0, ast.copy_location(ast.Expr(call("handled", handler)), handler))
        self.hoisted = before
        statement: ast.stmt = s
        return statement

    def operation(self, s: Any, rest: Sequence[ast.stmt], out: list[ast.stmt]) -> ast.expr:
        """Append the blocks of a statement to ``out``, and return the call of its operator. ``rest``: the statements after a
        branch that may leave; each side that does not leave runs them too."""
        if isinstance(s, ast.With | ast.Try):
            return self.enclosed(s, out)
        target = [s.target] if isinstance(s, ast.For) else []
        stored = self.stored([*target, s.test if isinstance(s, ast.While) else s, *s.body, *s.orelse, *rest])
        names = self.names(stored, s)
        none = ast.copy_location(ast.Constant(None), s)
        if isinstance(s, ast.If):
            last: list[ast.stmt] = []
            if rest:
                after = ast.copy_location(ast.Call(self.block("rest", rest, s, out), [], []), s)
                finished = _Finished(after)
                finished.bound, finished.live, finished.filled = rest, self.live(s, rest), self.filled(rest[-1], stored)
                last = [ast.copy_location(finished, s)]
            falls = [last if falls_through(body) else [] for body in (s.body, s.orelse)]
            then = self.block("then", s.body, s, out, last=falls[0])
            orelse = self.block("orelse", s.orelse, s, out, last=falls[1]) if s.orelse or falls[1] else none
            last_one = rest[-1] if rest else s
            live = self.listed(self.live(s, rest), self.filled(last_one, stored) if self.depth and leaves([s, *rest]) else ())
            test = self.expression(tested(s.test))
            out += self.flushed()
            return call("if", s.test, test, then, orelse, names, *live)
        temporary = name_texts(sorted(self.temporary[id(s)] & self.shared))
        live = self.listed((self.liveness.heads[id(s)] | self.liveness.after[id(s)]) & self.maybe)
        after_loop = self.block("orelse", s.orelse, s, out) if s.orelse else none
        if isinstance(s, ast.While):
            tested_once = _Finished(self.expression(tested(s.test)))
            out += self.flushed()
            test = self.block("test", [ast.copy_location(tested_once, s.test)], s, out)
            return call("while", s.test, test, self.block("body", s.body, s, out), after_loop, names, temporary, *live)
        item = ast.copy_location(ast.Assign([s.target], ast.copy_location(ast.Name(ITEM, ast.Load()), s.target)), s.target)
        body = self.block("body", s.body, s, out, first=item)
        sequence = _sequence(self.expression(s.iter))
        out += self.flushed()
        return call("for", s.iter, sequence, body, after_loop, names, temporary, *live)

    def enclosed(self, s: ast.With | ast.Try, out: list[ast.stmt]) -> ast.expr:
        """Append the function of a ``with`` or ``try`` statement to ``out``, whose parts are blocks of their own, and return the
        call of its operator.

            try:                    def try1():
                x = a[i]                ended = None
            except IndexError:          try: ended = body2()
                return b      ->        except IndexError: handled(); ended = handler3()
            else:                       else: ended = after(ended, orelse4, ())
                x = x + 1               return ended
                                    try_(try1, ("x",))
        """
        names = self.stored([s])
        ended = f"{PREFIX}ended"
        filled = self.filled(s, names) if leaves([s]) else ()
        self.depth += 1

        def runs(name: str, body: Sequence[ast.stmt], at: ast.AST) -> ast.stmt:
            title = self.block(name, body, s, out)
            operand: ast.expr = ast.copy_location(ast.Call(title, [], []), at)
            if name == "orelse":
                operand = call("after", at, ast.Name(ended, ast.Load()), title, self.names(self.stored(body), at))
            return ast.copy_location(ast.Assign([ast.Name(ended, ast.Store())], operand), at)

        kind = "with" if isinstance(s, ast.With) else "try"
        declarations = self.declarations([s])
        start = ast.Assign([ast.Name(ended, ast.Store())], ast.Constant(None))
        if isinstance(s, ast.With):
            for item in s.items:
                item.context_expr = self.expression(item.context_expr)
            new: ast.stmt = ast.With(s.items, [runs("body", s.body, s)], None)
        else:
            body = [runs("body", s.body, s)]
            for handler in s.handlers:
                handled = ast.copy_location(ast.Expr(call("handled", handler)), handler)
                handler.body = [handled, runs("handler", handler.body, handler)]
            orelse = [runs("orelse", s.orelse, s)] if s.orelse else []
            last = self.statements(s.finalbody, is_block=True, is_guarded=True)
            new = ast.Try(body, s.handlers, orelse, last)
        end = ast.Return(ast.Name(ended, ast.Load()))
        inside = [*declarations, start, *self.flushed(), ast.copy_location(new, s), end]
        title = self.define(kind, [ast.copy_location(x, s) for x in inside], s, out)
        self.depth -= 1
        live = self.liveness.after[id(s)] & self.maybe
        return call("try", s, title, self.names(names, s), *self.listed(live, filled))

    def names(self, stored: Sequence[str], at: ast.AST) -> ast.expr:
        """Return the names that a statement binds, as an argument of its operator."""
        sole = [name for name in stored if name in self.sole]
        return call("names", at, name_texts(stored), name_texts(sole)) if sole else name_texts(stored)

    def filled(self, s: ast.stmt, names: Sequence[str]) -> Sequence[str]:
        """Return the names that are read after a statement in which paths that leave it do not bind them: where it is left, no
        value of theirs is read."""
        if isinstance(s, _Finished):
            return s.filled
        after = self.liveness.after[id(s)] - self.maybe
        return [name for name in names if name in after]

    def listed(self, live: Set[str], filled: Sequence[str] = ()) -> list[ast.expr]:
        """Return the last arguments of an operator: the names that are read later and may be unbound, if there are any, and the
        ones that paths that leave the statement do not bind."""
        if filled:
            return [name_texts(sorted(live)), name_texts(filled)]
        return [name_texts(sorted(live))] if live else []

    def live(self, s: ast.stmt, rest: Sequence[ast.stmt]) -> Set[str]:
        """Return the variables that may be unbound and are read after a statement and the ones after it, ``rest``."""
        last = rest[-1] if rest else s
        return last.live if isinstance(last, _Finished) else self.liveness.after[id(last)] & self.maybe

    def block(
        self, name: str, body: Sequence[ast.stmt], at: ast.stmt, out: list[ast.stmt], first: ast.stmt | None = None,
        last: Sequence[ast.stmt] = (),
    ) -> ast.Name:  # fmt: skip
        """Append the function of a block to ``out`` and return its name. ``first``: a statement before its own, which binds the
        parameter; ``last``: statements after them."""
        start = [] if first is None else [first]
        declarations = self.declarations([*start, *body])
        inside = [*start, *self.statements([*body, *last], is_block=True)]
        return self.define(name, [*declarations, *(inside or [ast.Pass()])], at, out, first is not None)

    def declarations(self, nodes: Sequence[ast.AST]) -> list[ast.stmt]:
        """Return the declarations of the variables of the function, and the globals, that nodes bind."""
        stored, written = self.stored(nodes), sorted(self.globals & set(bound_names(nodes)))
        result: list[ast.stmt] = [ast.Nonlocal(stored)] if stored else []
        return [*result, ast.Global(written)] if written else result

    def define(self, name: str, body: list[ast.stmt], at: ast.stmt, out: list[ast.stmt], has_item: bool = False) -> ast.Name:
        """Append a function to ``out`` and return its name. ``has_item``: it has a parameter, an item of a loop."""
        self.count += 1
        title = f"{PREFIX}{name}{self.count}"
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(ITEM)] if has_item else [], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        node = ast.FunctionDef(title, arguments, body, [], None, None)
        if "type_params" in ast.FunctionDef._fields:
            node.type_params = []  # type: ignore[attr-defined]
        out.append(ast.copy_location(node, at))
        return ast.copy_location(ast.Name(title, ast.Load()), at)

    def stored(self, nodes: Sequence[ast.AST]) -> list[str]:
        """Return the variables of the function that nodes bind."""
        inside = [n for node in nodes if isinstance(node, _Finished) for n in node.bound]
        more = self.stored(inside) if inside else []
        return list(dict.fromkeys([*(name for name in bound_names(nodes) if name in self.shared), *more]))

    def left(self, operand: ast.expr, at: ast.stmt, is_block: bool) -> ast.stmt:
        """Return the statement that returns what an operator returned."""
        return ast.copy_location(ast.Return(operand if is_block else call("value", at, operand)), at)

    def propagated(self, operand: ast.expr, at: ast.stmt, is_block: bool) -> list[ast.stmt]:
        """Return statements that return what an operator returned if it is a completion."""
        self.count += 1
        name = f"{PREFIX}completion{self.count}"
        store = ast.Assign([ast.Name(name, ast.Store())], operand)
        load = ast.copy_location(ast.Name(name, ast.Load()), at)
        test = ast.If(call("completed", at, load), [self.left(load, at, is_block)], [])
        return [ast.copy_location(store, at), ast.copy_location(test, at)]

