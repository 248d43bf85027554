"""`uopc show` and `uopc graph` on files of every kind, with core alone."""

from __future__ import annotations

import importlib.metadata
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from uopc.cli import files, graph, main
from uopc.plugins import PluginHost, use
from uopc.uir import parse_uir, to_uir

TEXT = """\
# Numbers with gaps; a line that nothing reads.
%2 = buffer 6 : dtype=f32 slot=3
%5 = reshape %2, (2, 3)
%7 = param 1 : dtype=f32 shape=(2, 3)
%8 = iota 9
%10 = mul %5, %7
%11 = reduce %10, add, 2
"""
SHOWN = """\
# graph: 5 nodes
# inputs: %0, %2
# outputs: %4
%0 = buffer 6 : dtype=f32 slot=3          # f32[6]
%1 = reshape %0, (2, 3)                   # f32[2, 3]
%2 = param 1 : dtype=f32 shape=(2, 3)     # f32[2, 3]
%3 = mul %1, %2                           # f32[2, 3]
%4 = reduce %3, add, 2                    # f32[]
"""
LOOPS = """\
%0 = range 0, 6 : dtype=i32
%1 = buffer 6 : dtype=f32 slot=1
%2 = buffer 6 : dtype=f32 slot=0
%3 = index %2, %0
%4 = mul %3, 2.0
%5 = store %1, %0, %4
%6 = end %0, %5
%7 = sink %6, e_6
"""
PLAN = """\
%0 = buffer 6 : dtype=f32 slot=1
%1 = buffer 6 : dtype=f32 slot=0
%2 = sqrt %1
%3 = sink %2, e_6
%4 = call %3, %0, %1
%5 = after %0, %4
%6 = sink %5, plan
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def host() -> Iterator[PluginHost]:
    """A host in use, with the plugins of the distribution uopc-core."""
    points = importlib.metadata.distribution("uopc-core").entry_points
    with use(PluginHost(points.select(group="uopc.plugins"), strict=True)) as found:
        yield found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run(*words)``: the exit code, and what was printed to both streams."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str | bytes], str]:
    """``file(text)``: the path of a new file that holds it."""

    def write(text: str | bytes) -> str:
        path = tmp_path / "graph.uir"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def test_show_prints_what_reads_back(run: Run, file) -> None:
    code, out, err = run("show", file(TEXT))
    assert (code, err) == (0, "")
    assert [x.split() for x in out.splitlines()] == [
        x.split() for x in SHOWN.splitlines()
    ]
    assert parse_uir(out) is parse_uir(TEXT)
    assert run("show", file(out)) == (0, out, "")


def test_show_aligns_comments_up_to_a_width(run: Run, file) -> None:
    wide = "%0 = iota 2\n%1 = stack " + ", ".join(["%0"] * 50)
    _, out, _ = run("show", file(wide))
    short, long = out.splitlines()[-2:]
    assert short.index("#") == 62
    assert long.endswith(" %0  # i32[50, 2]")


HEADS = {
    "loops": (LOOPS, ["# loops: 8 nodes", "# inputs: %2", "# outputs: %1"]),
    "plan": (PLAN, ["# plan: 7 nodes", "# inputs: %0, %1", "# outputs: %5"]),
    "roots": ("%0 = iota 3\n%1 = sink %0, %0, 2.5, -1, roots",
              ["# graph: 2 nodes", "# inputs: none", "# outputs: %0, %0, 2.5, -1"]),
    "constant": ("%0 = const 1.5", ["# graph: 1 node", "# inputs: none",
                                    "# outputs: %0"]),
    "nothing": ("%0 = sink x", ["# graph: 1 node", "# inputs: none",
                                "# outputs: none"]),
    "address": ("%0 = range 0, 4 : dtype=i32\n%1 = mul %0, 3",
                ["# loops: 2 nodes", "# inputs: none", "# outputs: none"]),
    "huge": ("%0 = iota 1\n%1 = expand %0, (1000000000000000000,)",
             ["# graph: 2 nodes", "# inputs: none", "# outputs: %1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_show_says_what_it_is(run: Run, file, name: str) -> None:
    text, head = HEADS[name]
    code, out, err = run("show", file(text))
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == head
    assert parse_uir(out) is parse_uir(text)


ILLEGAL = {
    "mixed": LOOPS.replace("sink %6, e_6", "reshape %0, (1,)"),
    "local": "%0 = buffer 3 : dtype=f32 slot=0 space=local\n%1 = sqrt %0",
    "statement as operand": LOOPS + "%8 = cast %5 : dtype=f32\n%9 = sink %6, x\n"
    "%10 = add %8, 1.0",
    "body": "%0 = range 0, 3 : dtype=i32\n%1 = end %0, 1.0\n%2 = sink %1, k",
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_show_names_the_rule_that_a_graph_breaks(run: Run, file, name: str) -> None:
    path = file(ILLEGAL[name])
    code, out, err = run("show", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"uopc: {path}: ")
    assert " rule '" in err
    assert err.count("\n") == 1


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "line 1, column 1: expected at least one node"),
    "blank": (b"\n\n   \n", "line 1, column 1: expected at least one node"),
    "zeros": (b"\0" * 1000, r"line 1, column 1: expected a node such as %0, got '\x00"),
    "binary": (b"%0 = iota 3\n\x7fELF\xff\xfe", "line 2: the byte 0xff is not UTF-8"),
    "latin": ("%0 = iota 3 # é".encode("latin-1"), "line 1: the byte 0xe9 is not"),
    "utf-16": ("%0 = iota 3".encode("utf-16"), "line 1: the byte 0xff is not UTF-8"),
    "truncated": (TEXT.encode()[:-12], "line 7, column "),
    "cut character": ("%0 = iota 3 # €".encode()[:-1], "line 1: the byte 0xe2 is"),
    "shell": (b"$(touch x); `id` | sh", "line 1, column 1: expected a node"),
    "markup": (b"<svg onload=x>", "line 1, column 1: expected a node"),
}


@pytest.mark.parametrize("command", ["show", "graph"])
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line(run: Run, file, name: str, command: str) -> None:
    data, what = BAD_FILES[name]
    path = file(data)
    code, out, err = run(command, path)
    assert (code, out) == (1, "")
    assert err.startswith(f"uopc: {path}: {what}")
    assert err.count("\n") == 1


def test_no_file(run: Run, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.uir")
    assert run("show", missing) == (
        1, "", f"uopc: cannot read {missing}: No such file or directory\n"
    )  # fmt: skip
    assert run("show", str(tmp_path)) == (
        1, "", f"uopc: cannot read {tmp_path}: Is a directory\n"
    )  # fmt: skip
    for name in ("a\0b", "x" * 10_000, ""):
        code, out, err = run("show", name)
        assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_file_without_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    assert run("show", "/dev/zero") == (1, "", "uopc: /dev/zero is larger than 1 MiB\n")


def test_a_byte_order_mark_and_windows_lines(run: Run, file) -> None:
    windows = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    assert run("show", file(windows)) == run("show", file(TEXT))


def test_standard_input(run: Run, file, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = run("show", file(TEXT))
    for text, result in ((TEXT.encode(), wanted), (b"\xff", None)):
        stream = io.TextIOWrapper(io.BytesIO(text))
        monkeypatch.setattr(sys, "stdin", stream)
        got = run("show", "-")
        assert got == (result or (1, "", "uopc: standard input: line 1: the byte 0xff "
                                         "is not UTF-8 text\n"))  # fmt: skip
    monkeypatch.setattr(sys, "stdin", None)
    assert run("show", "-") == (1, "", "uopc: there is no standard input\n")


def test_a_graph_as_dot_text(run: Run, file, tmp_path: Path) -> None:
    code, out, err = run("graph", file(TEXT))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert (lines[0], lines[-1]) == ("digraph uopc {", "}")
    label = r"%2 = param 1 : dtype=f32 shape=(2, 3)\nf32[2, 3]"
    assert f'  n2 [label="{label}"];' in lines
    assert [x for x in lines if "->" in x] == [
        "  n0 -> n1;", "  n1 -> n3;", "  n2 -> n3;", "  n3 -> n4;"
    ]  # fmt: skip
    for name in ("out.dot", "OUT.GV"):
        assert run("graph", file(TEXT), "-o", str(tmp_path / name)) == (0, "", "")
        assert (tmp_path / name).read_text() == out
    assert run("graph", file(TEXT), "-o", "-") == (0, out, "")


def test_dot_text_quotes_what_it_shows() -> None:
    assert graph._quoted('a"; b\\') == 'a\\"; b\\\\'


def test_a_picture_needs_graphviz(
    run: Run, file, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    code, out, err = run("graph", file(TEXT), "-o", str(tmp_path / "out.svg"))
    assert (code, out) == (1, "")
    assert "install graphviz" in err
    assert "-o out.dot" in err
    code, _, err = run("graph", file(TEXT), "-o", str(tmp_path / "out.txt"))
    assert code == 1
    assert "out.txt does not end in one of .dot, .gv, .svg, .png, .pdf" in err


@pytest.fixture
def fake_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], SimpleNamespace]:
    """``fake_dot(program)``: a `dot` that is this shell program."""

    def make(program: str) -> SimpleNamespace:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        script = folder / "dot"
        script.write_text(f"#!/bin/sh\n{program}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return SimpleNamespace(out=tmp_path / "; touch harm; $(id).svg")

    return make


def test_a_picture(run: Run, file, fake_dot, tmp_path: Path) -> None:
    """Dot gets the text and one argument: no name that could be an option."""
    dot = fake_dot('echo "$#" "$1"; cat')
    assert run("graph", file(TEXT), "-o", str(dot.out)) == (0, "", "")
    _, text, _ = run("graph", file(TEXT))
    assert dot.out.read_text() == f"1 -Tsvg\n{text}"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        dot.out.name, "bin", "graph.uir"
    ]  # fmt: skip


def test_a_picture_that_fails(
    run: Run, file, fake_dot, monkeypatch: pytest.MonkeyPatch
) -> None:
    dot = fake_dot("echo syntax error >&2; echo more >&2; exit 3")
    words = ("graph", file(TEXT), "-o", str(dot.out))
    assert run(*words) == (1, "", "uopc: dot failed: syntax error\n")
    fake_dot("exit 3")
    assert run(*words) == (1, "", "uopc: dot failed: exit status 3\n")
    fake_dot("exec sleep 10")
    monkeypatch.setattr(graph, "MAX_SECONDS", 0.2)
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert err.startswith("uopc: dot did not end in 0.2 seconds; -o out.dot")
    monkeypatch.setattr(graph, "MAX_DRAWN", 3)
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert "a graph of 5 nodes is too large to draw (at most 3)" in err
    assert not dot.out.exists()


def test_a_place_that_cannot_be_written(run: Run, file, tmp_path: Path) -> None:
    out = str(tmp_path / "no" / "out.dot")
    assert run("graph", file(TEXT), "-o", out) == (
        1, "", f"uopc: cannot write {out}: No such file or directory\n"
    )  # fmt: skip


@pytest.mark.parametrize("words", [("show",), ("graph",), ("show", "a", "b")])
def test_wrong_usage_is_status_2(words: tuple[str, ...], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: uopc")


@pytest.mark.parametrize(
    ("command", "distribution"),
    [("grad", "uopc-autodiff"), ("compile", "uopc-backend-c")],
)
def test_a_command_of_a_distribution_that_is_missing(
    run: Run, command: str, distribution: str
) -> None:
    wanted = f"uopc: the command {command!r} needs {distribution}: pip install "
    assert run(command, "--wrt", "%2", "x") == (1, "", f"{wanted}{distribution}\n")
    assert run(command) == (1, "", f"{wanted}{distribution}\n")


def test_a_command_of_a_plugin_that_failed_or_is_blocked(
    run: Run, fake: SimpleNamespace
) -> None:
    bad = fake.entry_point("autodiff", ImportError("no x"), "uopc-autodiff 0.1")
    with use(PluginHost([bad])):
        code, out, err = run("grad", "x")
    assert (code, out) == (1, "")
    assert "; note: plugin 'autodiff' (uopc-autodiff 0.1) failed in import" in err
    with use(PluginHost([bad], block=["autodiff"])):
        wanted = "uopc: the command 'grad' comes with the blocked plugin 'autodiff'\n"
        assert run("grad", "x") == (1, "", wanted)


def test_show_is_linear(run: Run, file) -> None:
    """A chain of 20,000 nodes, in both directions."""
    text = "%0 = buffer 2 : dtype=f32 slot=0\n" + "\n".join(
        f"%{k} = add %{k - 1}, %{k - 1}" for k in range(1, 20_000)
    )
    code, out, _ = run("show", file(text))
    assert code == 0
    assert to_uir(parse_uir(out)) == text
    assert run("graph", file(text))[1].count("->") == 2 * 19_999
