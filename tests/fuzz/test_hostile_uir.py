"""Whatever a .uir file holds: a graph or one line of explanation, soon, and no harm.

Texts of real graphs, loop programs and plans are damaged, grown by random lines or
replaced by noise, and taken through the parser, `show`, `graph`, `grad` and `compile`.
"""

from __future__ import annotations

import functools
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uopc.autodiff.command import gradients
from uopc.backend_c.command import c_text
from uopc.cli import CommandError, GraphFile, read_graph
from uopc.cli.graph import to_dot
from uopc.cli.show import annotated
from uopc.dtype import DTYPES
from uopc.kernelize import make_plan, plan_graph
from uopc.runtime import lower
from uopc.testing import random_graph
from uopc.uir import UirError, parse_nodes, parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, Ops, UOp

SECONDS = 20
PLACE = re.compile(r"line \d+, column \d+: .")
SHORT = 600

unhurried = settings(
    deadline=None,  # each case has its own, in `limited`
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Fail, wherever the program is, after this much of the processor's time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def parsed(text: str) -> GraphFile | None:
    """The graph, if it is one; the error, if not, is as it should be."""
    try:
        nodes = parse_nodes(text)
    except UirError as error:
        message = str(error)
        assert PLACE.match(message), message
        assert "\n" not in message and len(message) < SHORT
        return None
    assert nodes
    return GraphFile("file", nodes)


def explained(run: Callable[[], str | list[UOp]]) -> str:
    """What a command prints, or nothing if it says why not, in one line."""
    try:
        result = run()
    except CommandError as error:
        assert str(error).startswith("file")
        assert len(str(error).splitlines()) == 1
        return ""
    return result if isinstance(result, str) else ""


def survives(text: str, targets: tuple[int, ...] = (0,)) -> None:
    """Take a text through everything that takes text."""
    with limited():
        file = parsed(text)
        if file is None:
            return
        root = file.root
        assert parse_uir(to_uir(root)) is root
        if shown := explained(lambda: annotated(file)):
            assert parse_uir(shown) is root
        to_dot(root)
        names = list(file.nodes)
        wrt = [names[t % len(names)] for t in targets]
        explained(lambda: gradients(file, wrt))
        harmless(explained(lambda: c_text(file)))


DIRECTIVE = re.compile(
    r"#pragma GCC (unroll 1|diagnostic ignored \"-Wpsabi\")"
    r"|#(el)?if ([()!&|=<>*\d\s]|defined|UOPC_ANY_FMA|__\w+)+|#ifdef __\w+"
    r"|#define UOPC_ANY_FMA|#else|#endif"
)
QUOTED = re.compile(r'#pragma |__builtin_nanf?\(""\)|__asm__\("" : "\+[rv]"\(x\)\)')


def harmless(c: str) -> None:
    """Nothing but the characters, and the names, that the printer itself writes."""
    assert not re.search(r"[^\w\s(){}\[\];,.*+/%<>=!&|^~?:#\"-]", c, re.ASCII), c
    for line in c.splitlines():
        if "#" in line:
            assert DIRECTIVE.fullmatch(line.strip()), line
        if '"' in line:
            assert QUOTED.search(line), line


@functools.cache
def texts() -> tuple[str, ...]:
    """Texts of each stage, without the types whose support differs by backend."""
    found: list[str] = []
    for seed in range(8):
        graph = random_graph(seed, steps=7, max_elements=24)
        found += [to_uir(UOp(Ops.SINK, graph.roots, "roots")), to_uir(graph.roots[0])]
        plan, _ = make_plan(graph.roots)
        found += [to_uir(lower(k.ast, k.name)) for k in plan.kernels[:2]]
        found.append(to_uir(plan_graph(plan)))
    return tuple(found)


WORDS = (
    *"=,:()#%;$`'\"\\\0\n", "()", "(1,)", "(2, 3)", "((0, 1),)", "(0,)", "((", "0", "1",
    "-1", "2.5", "nan", "-inf", "1e999", "-0.0", "true", "1:u8", "1.0:f64", "300:u8",
    "4294967296", str(10**18), "9" * 99, "9" * 101, "dtype=f32", "dtype=i8", "slot=0",
    "dtype=void", "space=local", "shape=(2,)", "version=1", "detach", "contiguous",
    "__class__", "__import__", "$(touch harm)", "{0}", "%d", "int", "main", "\u2028",
    *DTYPES, *(op.name for op in BUILTIN_OPS), *(f"%{k}" for k in range(8)),
)  # fmt: skip
words = st.sampled_from(WORDS)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A valid text after a few edits of characters, words or lines."""
    text = draw(st.sampled_from(texts()))
    for _ in range(draw(st.integers(1, 4))):
        pieces = re.findall(r"\w+|\s+|.", text)
        lines = text.split("\n")
        at = draw(st.integers(0, len(pieces)))
        line = draw(st.integers(0, len(lines) - 1))
        match draw(
            st.sampled_from(("flip", "swap", "cut", "double", "word", "number"))
        ):
            case "flip":
                middle = min(at, len(text) - 1)
                character = draw(st.characters())
                text = text[:middle] + character + text[middle + 1 :]
            case "swap":
                other = draw(st.integers(0, len(pieces) - 1))
                at = min(at, len(pieces) - 1)
                pieces[at], pieces[other] = pieces[other], pieces[at]
                text = "".join(pieces)
            case "cut":
                text = "".join(pieces[:at]) or text
            case "double":
                text = "\n".join([*lines[: line + 1], lines[line], *lines[line + 1 :]])
            case "word":
                text = "".join([*pieces[:at], draw(words), *pieces[at + 1 :]])
            case "number":
                numbers = list(re.finditer(r"\d+", text))
                if numbers:
                    m = draw(st.sampled_from(numbers))
                    text = text[: m.start()] + draw(words) + text[m.end() :]
    return text


def grow(text: str, op: str, operands: list[str], keys: str) -> str:
    """The text with one more line, if that makes a graph."""
    number = text.count("\n") + 1
    longer = f"{text}\n%9{number} = {op} {', '.join(operands)}{keys}"
    return longer if parsed(longer) else text


operands = st.sampled_from(
    (*(f"%{k}" for k in range(12)), "0", "1", "1.0", "nan", "2:u8", "true", "(1,)",
     "(6,)", "(1, 0)", "((0, 1),)", "add", "max", "detach", "k", str(10**12))
)  # fmt: skip
keys = st.sampled_from(
    ("", "", "", " : dtype=f32", " : dtype=i32", " : dtype=f64 slot=1", " : dtype=bool")
)
line = st.tuples(
    st.sampled_from([op.name for op in BUILTIN_OPS]),
    st.lists(operands, max_size=4),
    keys,
)


@given(damaged(), st.tuples(st.integers(0, 30), st.integers(0, 30)))
@unhurried
def test_damaged_text(text: str, targets: tuple[int, int]) -> None:
    survives(text, targets)


@given(st.data())
@unhurried
def test_strange_graphs(data: st.DataObject) -> None:
    """Legal lines in orders that no pass would make them in."""
    text = data.draw(st.sampled_from(texts()))
    for op, items, tail in data.draw(st.lists(line, max_size=40)):
        text = grow(text, op, items, tail)
    survives(text, (data.draw(st.integers(0, 50)), 0))


@given(st.lists(words, max_size=60).map(" ".join))
@unhurried
def test_random_words(text: str) -> None:
    survives(text)
    survives("%0 = " + text)


@given(st.text(max_size=200))
@unhurried
def test_random_text(text: str) -> None:
    survives(text)


@given(st.binary(max_size=300))
@settings(unhurried, suppress_health_check=list(HealthCheck))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.uir"
    path.write_bytes(data)
    with limited():
        try:
            read_graph(str(path))
        except CommandError as error:
            assert str(error).startswith(f"{path}: line ")
            assert len(str(error).splitlines()) == 1


B = "%0 = buffer 6 : dtype=f32 slot=0\n"
HUGE = 10**18
EXTREMES: dict[str, str] = {
    "expand": f"%0 = iota 1\n%1 = expand %0, ({HUGE},)\n%2 = cast %1 : dtype=f32\n"
    f"%3 = reduce %2, add, 1",
    "many huge axes": "%0 = iota 1\n%1 = reshape %0, (" + "1, " * 32 + ")\n"
    "%2 = expand %1, (" + ("9" * 100 + ", ") * 32 + ")",
    "huge buffer": f"%0 = buffer {HUGE} : dtype=f64 slot={HUGE}\n%1 = sqrt %0",
    "huge buffers": "".join(
        f"%{k} = buffer {10**99} : dtype=f64 slot={k}\n" for k in range(20)
    ) + "%20 = stack " + ", ".join(f"%{k}" for k in range(20)),
    "huge range": f"%0 = range 0, {2**63 - 1} : dtype=i64\n%1 = buffer 1 : dtype=i64 "
    "slot=0\n%2 = store %1, 0, %0\n%3 = end %0, %2\n%4 = sink %3, k",
    "range beyond its type": f"%0 = range 0, {HUGE} : dtype=i8",
    "iota": f"%0 = iota {2**31 - 2}\n%1 = mul %0, %0\n%2 = reduce %1, add, 1",
    "huge iota": f"%0 = iota {HUGE}",
    "huge window": f"{B}%1 = shrink %0, ((0, {HUGE}),)",
    "huge param": f"%0 = param {HUGE} : dtype=f32 shape=({HUGE}, {HUGE})\n%1 = sin %0",
    "wide stack": "%0 = iota 2\n%1 = stack " + ", ".join(["%0"] * 20_000),
    "wide index": B + "%1 = index " + ", ".join(["%0"] * 20_000),
    "wide sink": B + "%1 = sink " + "%0, " * 20_000 + "k",
    "many keys": B.strip() + " slot=0" * 50_000,
    "deep chain": B + "".join(f"%{k} = sin %{k - 1}\n" for k in range(1, 20_000)),
    "doubling": B + "".join(f"%{k} = add %{k - 1}, %{k - 1}\n" for k in range(1, 200)),
    "stacks of stacks": B
    + "".join(f"%{k} = stack %{k - 1}, %{k - 1}\n" for k in range(1, 40)),
    "nested loops": "".join(
        f"%{k} = range {k}, 2 : dtype=i32\n" for k in range(2000)
    ) + "%2000 = buffer 1 : dtype=i32 slot=0\n%2001 = store %2000, 0, 1\n" + "".join(
        f"%{2002 + k} = end %{k}, %{2001 + k}\n" for k in range(2000)
    ) + "%5000 = sink %4001, k",
    "shared statements": "%0 = range 0, 2 : dtype=i32\n%1 = buffer 1 : dtype=i32 slot=0"
    "\n%2 = store %1, 0, %0\n"
    + "".join(f"%{k} = end %0, %{k - 1}, %{k - 1}\n" for k in range(3, 70))
    + "%99 = sink %69, k",
    "endless name of a node": f"%{'1' * 500_000} = iota 3",
    "endless name of an op": "%0 = " + "a" * 500_000,
    "endless name of a sink": B + "%1 = sink %0, " + "a" * 500_000,
    "endless comment": B + "#" + "x" * 2_000_000,
    "endless spaces": "%0 =" + " " * 2_000_000 + "iota" + " " * 2_000_000 + "3",
    "endless number": "%0 = const " + "9" * 2_000_000,
    "endless fraction": "%0 = const 1." + "0" * 2_000_000,
    "endless exponent": "%0 = const 1e" + "9" * 90,
    "endless type": "%0 = const 1:" + "a" * 1_000_000,
    "open brackets": B + "%1 = reshape %0, " + "(" * 1_000_000,
    "brackets": B + "%1 = reshape %0, " + "(" * 100_000 + ")" * 100_000,
    "bracket pairs": B + "%1 = shrink %0, (" + "()," * 300_000 + ")",
    "marks": "=" * 1_000_000,
    "percent signs": "%" * 1_000_000,
    "blank lines": "\n" * 1_000_000,
    "one bad line of many": "# x\n" * 300_000 + "%0 = jota",
    "every line bad": "%0 = jota\n" * 300_000,
    "every line the same": "%0 = iota 3\n" * 300_000,
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    survives(EXTREMES[name])
    # Nothing as large as what the text speaks of has been allocated.
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 1 << 20, "more than 1 GiB"


def test_a_million_lines() -> None:
    lines = ["%0 = buffer 8 : dtype=f32 slot=0"]
    lines += [f"%{k} = add %{k - 1}, %{k - 1}" for k in range(1, 1_000_000)]
    start = time.process_time()
    root = parse_uir("\n".join(lines))
    assert to_uir(root).split("\n") == lines
    assert time.process_time() - start < 120


NAMES = (
    "__class__", "__init__", "../../etc/passwd", "/bin/sh", "a b", "a;b", "`id`",
    "$(id)", "$HOME", "a&&b", "a|b", "a>b", "a\tb", "a\\", 'a"b', "a'b", "a/*", "*/",
    "//", "x(){}", "x(void){system(0);}void y", "int", "while", "main", "{0}", "%s",
    "%(x)s", "a\0b", "\x1b[31m", "é", "\u202e", "-rf", "--version", "-", "a.b", "a:b",
    "é" * 10_000,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_reach_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the name of an op, a key, a stage or a kernel."""
    monkeypatch.chdir(tmp_path)
    store = "%1 = store %0, 0, 1.0\n"
    for text in (
        B + store + f"%2 = sink %1, {name}",
        B + f"%1 = stage %0, {name}",
        B + f"%1 = {name} %0",
        f"%0 = buffer 6 : {name}=f32 slot=0",
        f"%0 = buffer 6 : dtype={name} slot=0",
        f"%0 = buffer 6 : dtype=f32 slot=0 space={name}",
        f"%{name} = iota 3",
        f"{name} = iota 3",
    ):
        survives(text)
    assert not list(tmp_path.iterdir())


def test_the_check_for_harm_finds_some() -> None:
    for text in ("void x() { $ }", 'char* s = "x";', "#include <stdio.h>", "a\\b", "é"):
        with pytest.raises(AssertionError):
            harmless(text)
    with pytest.raises(AssertionError, match="no answer within"), limited(0.01):
        while True:
            pass
