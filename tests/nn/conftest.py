"""Tests of uopc-nn run on the reference backend, which any installation has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uopc.config import overriding
from uopc.interp import backend
from uopc.tensor import Tensor

# The helpers beside these tests are imported by their plain names.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    """The reference backend, and the same random numbers for every test."""
    with overriding(UOPC_BACKEND="interp"):
        Tensor.manual_seed(0)
        yield


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry, the number of kernels, for every program that runs."""
    counted: list[int] = []
    original = backend.ReferenceProgram.__call__

    def counting(self: backend.ReferenceProgram, arrays: list[object]) -> None:
        counted.append(len(self._steps))
        original(self, arrays)

    monkeypatch.setattr(backend.ReferenceProgram, "__call__", counting)
    return counted
