"""All tests run with the checks between passes that are meant for tests."""

import os

# Every graph is legal at its stage, and its text reads back as the same graph.
os.environ.setdefault("UOPC_CHECK", "2")
