"""One kernel: from a graph over whole arrays to loops over elements."""

from uopc.rangeify.loops import rangeify

__all__ = ["rangeify"]
