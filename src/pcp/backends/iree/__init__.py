"""IREE as a backend: an optional extra that compiles for processors, Vulkan, CUDA, ROCm and Metal.

`chips.py` says what is compiled for, `prepared.py` writes a program as IREE understands it, `compiling.py` calls its compiler,
`running.py` its runtime, and `backend.py` is the `Backend` of both. `artifact.py` is a compiled program in a file, which runs
where there is no compiler.
"""
