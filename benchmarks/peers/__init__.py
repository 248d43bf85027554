"""The same workloads in several frameworks, timed in one interleaved run.

`workloads` says what is computed and how much of it there is; `formulas` holds the
models as NumPy and JAX share them; `in_numpy`, `in_torch`, `in_jax` and `in_uopc` are
written as a user of each would write them. `columns` names what is compared, `measure`
times one of them in a process of its own, `suite` starts those processes in turns,
`checks` compares what they computed, `machine` measures what the machine can do, and
`tables` prints it all as Markdown. `benchmarks/bench.py` is the command line.
"""
