"""Several machines on one: namespaces of the network joined by emulated lines, disks and clocks of their own.

- `isolation`: the benchmark's own namespaces, small disks, and what is built from C;
- `line.c`, `network`: lines of a rate, a delay and a loss, which can be cut and which count bytes;
- `clock.c`: a wall clock of its own for a process;
- `process`: `pcp` commands on these machines, heard and ended;
- `worker`, `slow_child`: `pcp worker` where only the training step differs: it takes longer, or only sleeps;
- `stand_in_run`: a whole run of which only the step is a stand-in, measured.
"""
