"""`python -m uopc.cli`, for where the `uopc` script is not on the path."""

import sys

from uopc.cli.main import main

sys.exit(main())
