"""The reference backend: NumPy, slow, obviously right. The oracle."""

from uopc.interp.backend import ReferenceBackend
from uopc.interp.evaluate import evaluate
from uopc.interp.loops import run_loops

__all__ = ["ReferenceBackend", "evaluate", "run_loops"]
