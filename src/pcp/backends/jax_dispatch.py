"""Where programs on a processor run: JAX gives them to a thread of its own, unless it is told not to."""

import jax


def compute_in_calling_thread() -> None:
    """Run programs on processors in the thread that calls them, which waits; to be called before devices are looked for.

    What the threads of XLA's client allocate lies in heaps that glibc gives back to the system whenever they are free, so each
    call would touch new pages. What the main thread allocates is kept for its next call; see `host_memory`.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]  # JAX says no types
