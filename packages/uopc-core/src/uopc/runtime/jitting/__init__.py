"""`jit`: capture what a call of a function computes, and repeat it by itself.

`function` has the decorator. A call that is captured is looked at from outside: the
`snapshot` of all tensors before it, the `surroundings` that Python code can see, the
runs that `uopc.runtime.capture` notes. `places` and `bindings` find out where each
buffer comes from, which makes a `recipe`, and `replay` follows it, over the memory that
`cells` give it.
"""
