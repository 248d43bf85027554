"""What the processor says about itself."""

import os
from pathlib import Path

import pytest

from uopc.backend_c import cpu


def test_cpuinfo_of_several_kinds():
    text = "processor : 0\nmodel name\t: Some CPU @ 2GHz\nflags\t: sse avx2 fpu\n"
    assert cpu.parse_cpuinfo(text) == ("Some CPU @ 2GHz", ("avx2", "fpu", "sse"))
    arm = "Features : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd0c\n"
    assert cpu.parse_cpuinfo(arm) == ("0x41:0xd0c", ("asimd", "fp"))
    assert cpu.parse_cpuinfo("")[1] == ()


def test_only_the_first_processor_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "cpuinfo"
    file.write_text("model name : one\nflags : a\n\nmodel name : two\nflags : b\n")
    monkeypatch.setattr(cpu, "CPUINFO", file)
    assert cpu._described.__wrapped__() == ("one", ("a",))
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "absent")
    assert cpu._described.__wrapped__()[1] == ()


def test_cores_are_those_this_process_may_use():
    assert 1 <= cpu.cores() <= (os.cpu_count() or 1)
