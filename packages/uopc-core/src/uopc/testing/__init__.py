"""What authors of plugins and tests import."""

from uopc.testing.nodes import buf

__all__ = ["buf"]
