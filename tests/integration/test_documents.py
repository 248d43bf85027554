"""Every example in the documents runs, and prints what the document says.

In `README.md`, `packages/*/README.md` and `docs/*.md`, the blocks marked ```python
of one file are one program, in their order. A block marked ```text, ```c or ```uir
that follows holds what the code above it prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(ROOT.glob("packages/*/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
OUTPUTS = ("text", "c", "uir")
# Printed before each block's output; no program prints it by accident.
MARK = "\x1e"
FENCE = re.compile(r"```(\w*)(.*)")


@dataclass
class Block:
    """One fenced block: its language, the line it starts on, and its lines."""

    language: str
    line: int
    lines: list[str]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text."""
    found: list[Block] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if inside and line == "```":
            inside = False
        elif inside:
            found[-1].lines.append(line)
        elif fence:
            assert not fence[2], f"line {number}: more than a language: {line}"
            found.append(Block(fence[1], number, []))
            inside = True
    assert not inside, "a block is not closed"
    return found


def program(parts: list[Block]) -> str:
    """One program of all Python blocks, with the document's own line numbers."""
    lines: list[str] = []
    for block in parts:
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines))
            lines += [f"print({MARK!r}, flush=True)", *block.lines]
    return "\n".join(lines) + "\n"


def expected(parts: list[Block]) -> list[tuple[int, str | None]]:
    """For each Python block its line, and the text it must print, if there is one."""
    wanted: list[tuple[int, str | None]] = []
    for i, block in enumerate(parts):
        if block.language == "python":
            after = parts[i + 1] if i + 1 < len(parts) else None
            shown = after is not None and after.language in OUTPUTS
            wanted.append((block.line, "\n".join(after.lines) if shown else None))
    return wanted


def run(path: Path, text: str, folder: Path) -> list[str]:
    """What each Python block of a document prints."""
    script = folder / f"{path.parent.name}_{path.stem}.py"
    script.write_text(program(blocks(text)))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("UOPC_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, f"{path.relative_to(ROOT)}:\n{done.stderr}"
    return done.stdout.split(f"{MARK}\n")[1:]


def clean(text: str) -> str:
    """Without space at the ends of lines and blank lines at the end of the text."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_print_what_is_written(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    wanted = expected(blocks(text))
    assert wanted or not any(b.language in OUTPUTS for b in blocks(text))
    if wanted:
        printed = run(path, text, tmp_path)
        assert len(printed) == len(wanted)
        for (line, want), got in zip(wanted, printed, strict=True):
            if want is None:
                assert not got, f"line {line} prints, but the document does not say so"
            else:
                assert clean(got) == clean(want), f"the example on line {line}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_output_follows_code(path: Path) -> None:
    parts = blocks(path.read_text())
    for before, block in zip([None, *parts], parts, strict=False):
        assert block.language, f"line {block.line}: the block does not say what it is"
        if block.language in OUTPUTS:
            shown = before is not None and before.language == "python"
            assert shown, f"line {block.line}: output that no code prints"


def test_there_are_documents() -> None:
    names = {str(path.relative_to(ROOT)) for path in DOCUMENTS}
    assert {"README.md", "docs/pipeline.md", "docs/hooks.md"} <= names
    assert len([n for n in names if n.startswith("packages/")]) == 4


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[\w-]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


EXAMPLE = """\
```python
print(1)
```

```text
1
```

```python
print(2)
```
"""


def test_a_wrong_output_is_found(tmp_path: Path) -> None:
    parts = blocks(EXAMPLE)
    assert expected(parts) == [(1, "1"), (9, None)]
    assert program(parts).splitlines()[9] == "print(2)"
    assert [clean(out) for out in run(ROOT / "README.md", EXAMPLE, tmp_path)] == [
        "1",
        "2",
    ]


def test_an_error_names_the_document_s_line(tmp_path: Path) -> None:
    broken = EXAMPLE.replace("print(2)", "print(2 // 0)")
    with pytest.raises(AssertionError, match=r"(?s)line 10.*ZeroDivisionError"):
        run(ROOT / "README.md", broken, tmp_path)


def rewrite(path: Path) -> None:
    """Put what its examples print into a document."""
    text = path.read_text()
    parts = blocks(text)
    with tempfile.TemporaryDirectory() as folder:
        printed = run(path, text, Path(folder)) if expected(parts) else []
    outputs = iter(printed)
    lines = text.splitlines()
    changes: list[tuple[Block, str]] = []
    for block, after in zip(parts, [*parts, None][1:], strict=True):
        if block.language == "python":
            got = clean(next(outputs))
            if after is not None and after.language in OUTPUTS:
                changes.append((after, got))
    for block, got in reversed(changes):
        lines[block.line : block.line + len(block.lines)] = got.splitlines()
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":  # after a change of what is printed; then read the diff
    for document in DOCUMENTS:
        rewrite(document)
