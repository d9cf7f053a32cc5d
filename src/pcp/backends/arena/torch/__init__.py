"""Calls of the arena by PyTorch, over the same memory: an optional provider beside NumPy and the native library.

`tensors` makes tensors over arrays; `kernels` is the table of what torch computes; `convolutions` is the one operation that it
does in another way; `providing` hands instructions to it; `backend` is its name in targets and paths.
"""
