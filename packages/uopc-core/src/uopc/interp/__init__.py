"""The reference backend: NumPy, slow, obviously right. The oracle."""

from uopc.interp.backend import ReferenceBackend
from uopc.interp.evaluate import evaluate

__all__ = ["ReferenceBackend", "evaluate"]
