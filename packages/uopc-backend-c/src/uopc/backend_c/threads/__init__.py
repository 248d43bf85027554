"""The threads that parallel loops run on: a small pool of our own, one per process."""

from uopc.backend_c.threads.pool import set_threads, threads, use_pool

__all__ = ["set_threads", "threads", "use_pool"]
