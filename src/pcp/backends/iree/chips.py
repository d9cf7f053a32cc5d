"""What IREE compiles for: a kind of device, and the model of chip where code depends on it."""

from dataclasses import dataclass

from pcp.backends.target import InvalidTarget


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of device.

    Arguments:
        driver: what IREE's runtime calls it; empty where its Python package has none.
        flags: of the compiler, for every chip.
        chip_flag: the option of the compiler that takes a chip; empty if code is the same for all.
        chips: which may be given, the default first.
    """

    driver: str
    flags: tuple[str, ...]
    chip_flag: str = ""
    chips: tuple[str, ...] = ()


FAMILIES = {
    "llvm-cpu": Family(
        "local-task",
        (
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-opt-data-tiling",
            "--iree-llvmcpu-fail-on-large-vector=false",  # tiled products need larger vectors than it allows by itself
            "--iree-llvmcpu-stack-allocation-limit=262144",
        ),
        "--iree-llvmcpu-target-cpu",
        ("host", "generic"),
    ),
    # The profile has no fixed width of subgroups: vendors' profiles give wrong numbers on a device of another width.
    # Commands that are recorded once for all calls compute, on lavapipe, with the arrays of an earlier call.
    "vulkan": Family(
        "vulkan",
        ("--iree-hal-target-device=vulkan", "--iree-hal-indirect-command-buffers=false"),
        "--iree-vulkan-target",
        ("vp_android_baseline_2022",),
    ),
    "cuda": Family(
        "cuda", ("--iree-hal-target-device=cuda",), "--iree-cuda-target", ("sm_80", "sm_86", "sm_89")
    ),
    "rocm": Family(
        "hip", ("--iree-hal-target-device=hip",), "--iree-rocm-target", ("gfx942", "gfx90a", "gfx1100")
    ),
    "metal": Family("", ("--iree-hal-target-device=metal", "--iree-metal-compile-to-metallib=false")),
}
"""Every kind, by the name that devices and targets bear."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What code is made for.

    Arguments:
        kind: a key of `FAMILIES`.
        model: the chip; empty where code is the same for all.
    """

    kind: str
    model: str

    @staticmethod
    def of(name: str) -> "Chip":
        """The chip called `rocm:gfx942`; without a model the default one of its kind.

        Raises:
            InvalidTarget: there is no such kind or model; the message lists those that are.
        """
        kind, _, model = name.partition(":")
        if kind not in FAMILIES:
            raise InvalidTarget(
                f"{name!r} is not a target of IREE; choose one of: {', '.join(target_names())}"
            )
        models = FAMILIES[kind].chips
        if model and model not in models:
            known = ", ".join(f"{kind}:{each}" for each in models) or kind
            raise InvalidTarget(f"{name!r} is not a target of IREE; of {kind} there are: {known}")
        return Chip(kind, model or (models[0] if models else ""))

    @property
    def flags(self) -> list[str]:
        """The compiler's options for it."""
        family = FAMILIES[self.kind]
        return [*family.flags, *([f"{family.chip_flag}={self.model}"] if self.model else [])]

    def __str__(self) -> str:
        return f"{self.kind}:{self.model}" if self.model else self.kind


def target_names() -> list[str]:
    """Every target that can be named."""
    return [
        name
        for kind, family in FAMILIES.items()
        for name in ([f"{kind}:{chip}" for chip in family.chips] or [kind])
    ]
