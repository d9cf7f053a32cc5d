"""The same program on every device and backend of this machine, compared with the first.

python examples/07_several_backends.py [--cpu-devices 2]
"""

import argparse
import os
import time

import numpy as np


def parsed() -> argparse.Namespace:
    """The settings; XLA reads how many CPU devices to offer when it is first used, so this comes before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-devices", type=int, default=2, help="how many devices the CPU is to be")
    settings = parser.parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={settings.cpu_devices}".strip()
    return settings


def main() -> None:
    """Run everywhere, and say what is not here."""
    parsed()
    import pcp
    from pcp.backends import UnknownBackend, backend

    def layer(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
        return pcp.nn.gelu(x @ w).sum(axis=0)

    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((64, 128)).astype(np.float32),
        rng.standard_normal((128, 96)).astype(np.float32),
    )
    program = pcp.trace(layer, pcp.spec(x.shape, "f32"), pcp.spec(w.shape, "f32"))

    reference = None
    kinds = set()
    for name in ("xla", "iree", "arena"):
        try:
            devices = backend(name).devices()
        except UnknownBackend as error:
            print(f"backend {name}: not here ({error})")
            continue
        if name != "xla":
            print(f"backend {name}: has {', '.join(map(str, devices))}")
            continue
        for device in devices:
            plan = pcp.plan(program, device=device)
            result = np.asarray(plan.run(x, w))
            reference = result if reference is None else reference
            error = np.linalg.norm(result - reference) / np.linalg.norm(reference)
            began = time.perf_counter()
            plan.run(x, w).block_until_ready()
            seconds = time.perf_counter() - began
            print(
                f"{name} on {device}: {seconds * 1e6:.0f} us, relative difference from the first {error:.1e}"
            )
            assert error < 1e-3
            kinds.add(device.kind)
    for kind in ("cuda", "rocm", "metal"):
        if kind not in kinds:
            print(
                f"device kind {kind}: none here; install its PJRT plug-in for jax, and this example uses it"
            )


if __name__ == "__main__":
    main()
