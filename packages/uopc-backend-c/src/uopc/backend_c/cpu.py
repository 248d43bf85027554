"""What the processor offers: its name, its features, the sizes of its caches.

Nothing here starts a process, because the answers are part of every cache key.
"""

import contextlib
import ctypes
import functools
import os
import platform
import sys
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_UNITS = {"K": 1 << 10, "M": 1 << 20}


def features() -> tuple[str, ...]:
    """The processor's feature flags, sorted; empty where they cannot be read."""
    return _described()[1]


def name() -> str:
    """The processor's name as the system gives it, else the architecture."""
    return _described()[0]


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def caches() -> dict[int, int]:
    """Bytes of the first processor's caches for data, by level; {} if not known."""
    found = {}
    for folder in sorted(CACHES.glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            level, kind, size = (
                (folder / name).read_text().strip()
                for name in ("level", "type", "size")
            )
            if kind in ("Data", "Unified"):
                found[int(level)] = int(size[:-1]) * _UNITS[size[-1]]
    return found


@functools.cache
def _described() -> tuple[str, tuple[str, ...]]:
    if sys.platform == "darwin":
        return _from_sysctl()
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as stream:
            # The file repeats itself for each processor: the first one is enough.
            first: list[str] = []
            for line in stream:
                if not line.strip() and first:
                    break
                first.append(line)
    except OSError:
        return platform.machine() or "unknown", ()
    return parse_cpuinfo("".join(first))


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and features from the first processor's block of ``/proc/cpuinfo``."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        label, colon, value = line.partition(":")
        if colon:
            fields.setdefault(label.strip().lower(), value.strip())
    # x86 says "flags", Arm "Features", RISC-V "isa".
    words = fields.get("flags") or fields.get("features") or fields.get("isa") or ""
    title = fields.get("model name") or fields.get("hardware")
    if not title and "cpu part" in fields:
        title = f"{fields.get('cpu implementer', '?')}:{fields['cpu part']}"
    return title or platform.machine() or "unknown", tuple(sorted(set(words.split())))


def _from_sysctl() -> tuple[str, tuple[str, ...]]:
    title = _sysctl("machdep.cpu.brand_string") or platform.machine() or "unknown"
    words = f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}"
    return title, tuple(sorted(set(words.lower().split())))


def _sysctl(key: str) -> str:
    """One text value of macOS's ``sysctl``; empty where there is none."""
    sysctlbyname = ctypes.CDLL(None).sysctlbyname
    sysctlbyname.argtypes = (
        [ctypes.c_char_p] + [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
    )
    buffer, size = ctypes.create_string_buffer(4096), ctypes.c_size_t(4096)
    if sysctlbyname(key.encode(), buffer, ctypes.byref(size), None, 0):
        return ""
    return buffer.value.decode(errors="replace")
