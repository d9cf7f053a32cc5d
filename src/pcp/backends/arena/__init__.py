"""The arena: programs run by NumPy, operation by operation, in one block of memory that is planned beforehand.

`recording` makes instructions over storages from a Program, by the operations of `lowerings/`; `placement` gives each storage
its offset; `executable` makes the arrays once and calls one function after the other; `native` runs small steps in one call.
"""
