"""`uopc compile`: the C text of a graph in a file."""

from __future__ import annotations

import argparse

from uopc.backend_c.backend import CBackend, spellings
from uopc.backend_c.emit import Function, print_plan
from uopc.cli import CommandError, GraphFile, read_graph, write_text
from uopc.config import get, overriding
from uopc.kernelize import make_plan
from uopc.runtime import Lowered
from uopc.uop import Ops, UOp, toposort

# What C compilers and the printer take in good time.
MAX_NODES = 2000
MAX_NEST = 64
_STATEMENTS = (Ops.STORE, Ops.END)
_KEYWORDS = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long",
    "register", "restrict", "return", "short", "signed", "sizeof", "static",
    "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
    "asm", "typeof", "main",
))  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc compile`."""
    parser.add_argument("file", metavar="FILE", help="a .uir file; - reads from stdin")
    parser.add_argument("-o", "--output", metavar="OUT", help="where to (else stdout)")
    parser.add_argument(
        "--opt", metavar="LEVEL", type=_level, help="in place of UOPC_OPT"
    )


def _level(text: str) -> int:
    try:
        with overriding(UOPC_OPT=text):
            level: int = get("UOPC_OPT")
            return level
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run_compile(args: argparse.Namespace) -> int:
    """Print the C file that running the graph would compile."""
    file = read_graph(args.file)
    level = get("UOPC_OPT") if args.opt is None else args.opt
    with overriding(UOPC_OPT=level):
        write_text(args.output, c_text(file))
    return 0


def c_text(file: GraphFile) -> str:
    """C for a graph, with one entry point, or for one loop program.

    Raises CommandError for what is neither.
    """
    stage = file.stage()
    if stage == "plan":
        raise CommandError(
            f"{file.name} is a plan; compile the graph that it came from"
        )
    if stage == "loops":
        return _loops(file)
    for u in toposort(file.outputs):
        if u.op is Ops.PARAM:
            raise CommandError(
                f"{file.name}: param {u.arg.slot} is not bound; "
                "put a buffer in its place"
            )
    if not file.outputs:
        raise CommandError(f"{file.name}: the sink is empty, so there is nothing to do")
    backend = CBackend()
    try:
        plan, _ = make_plan(
            file.outputs,
            None,
            backend.supports,
            backend.name,
            in_one_nest=backend.in_one_nest,
        )
        return print_plan(plan, spellings())
    except (TypeError, ValueError, NotImplementedError) as error:
        raise CommandError(f"{file.name}: {error}") from error


def _loops(file: GraphFile) -> str:
    """A loop program as one function of its sink's name."""
    if fault := _fault(file.root):
        raise CommandError(f"{file.name}: {fault}")
    made = Function.of(Lowered(file.root, ""), spellings())
    return "\n".join([*made.helpers, made.text])


def _fault(sink: UOp) -> str:
    """What makes a loop program unfit to be a C function, or ""."""
    if sink.op is not Ops.SINK:
        return "a loop program ends with a sink of statements"
    if sink.arg in _KEYWORDS:
        return f"{sink.arg} is a word of C and no name for a function"
    order = toposort([sink])
    if len(order) > MAX_NODES:
        return f"a loop program of {len(order)} nodes; C compilers take {MAX_NODES}"
    backend = CBackend()
    memory: dict[tuple[str, int], UOp] = {}
    free: dict[UOp, frozenset[UOp]] = {}  # ranges whose loop is further out
    nest: dict[UOp, int] = {}
    length: dict[UOp, int] = {}  # a statement that two loops share is printed in both
    for u in order:
        if not backend.supports(u.op):
            return f"the backend has no spelling for {u.op.name}"
        if (
            u.op is Ops.BUFFER
            and memory.setdefault((u.arg.space, u.arg.slot), u) is not u
        ):
            return f"two {u.arg.space} buffers have slot {u.arg.slot}"
        is_loop = u.op is Ops.END
        own = {u} if u.op is Ops.RANGE else set()
        closed = u.src[:1] if is_loop else ()
        free[u] = frozenset(own.union(*(free[s] for s in u.src)).difference(closed))
        nest[u] = is_loop + max((nest[s] for s in u.src), default=0)
        length[u] = 1 + sum(length[s] for s in u.src if s.op in _STATEMENTS)
        if length[u] > MAX_NODES or max(nest[u], len(free[u])) > MAX_NEST:
            return "too many statements, or loops inside each other"
    if free[sink]:
        number = min(r.arg.number for r in free[sink])
        return f"range {number} is used outside of its loop"
    return _local_fault([u for u in order if u.op is Ops.STORE])


def _local_fault(stores: list[UOp]) -> str:
    """A local buffer takes a value from one statement to another, or is at fault."""
    written: set[UOp] = set()
    passed_on: set[UOp] = set()
    used: set[UOp] = set()
    for s in stores:
        target, *operands = s.src
        read = {u for u in toposort(operands) if u.op is Ops.BUFFER}
        written.add(target)
        passed_on |= read - {target}
        used |= read | {target}
    for u in used:
        if u.arg.space == "local" and not (u in written and u in passed_on):
            return f"local buffer {u.arg.slot} is not both written and read later"
    return ""
