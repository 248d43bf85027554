"""One process: ``python -m peers COLUMN WORKLOAD THREADS REPEATS SECONDS CLOCK``."""

import sys

from peers.measure import measure

if __name__ == "__main__":
    column, workload, threads, repeats, seconds, clock = sys.argv[1:]
    amount = int(threads), int(repeats), float(seconds)
    print(measure(column, workload, *amount, clock).to_json())
