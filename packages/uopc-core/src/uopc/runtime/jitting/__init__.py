"""`jit`: capture what a call of a function computes, and repeat it by itself.

`function` has the decorator. A call that is captured is looked at from outside: the
`snapshot` of all tensors before it, the `surroundings` that Python code can see, the
runs that `uopc.runtime.capture` notes. `places` and `bindings` find out where each
buffer comes from, which makes a `recipe`, and `replay` follows it, over the memory that
`cells` give it.

For example, of a step of gradient descent that is given ``x``, updates ``w`` and
returns its ``loss``, there is one run, of one program. Its buffers are:

- ``x``, an `Argument`: it is looked for at every call;
- ``w``, a `State` that is written: it stays where it is, unless somebody else has got
  hold of the old value; then the tensor moves to a copy first;
- the learning rate, a `State` that is only read, and may be elsewhere at the next call;
- ``loss``, which is `Made`: memory that nobody else sees, mostly that of the last
  result but one;
- what is in between, which is `Fixed`.

After the run the tensor of ``loss`` is returned. ``w`` needs nothing: its value is
where it was. Had it not been written in place, an `Effect` would give it the new
buffer.
"""
