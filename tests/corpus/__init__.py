"""Programs of JAX, flax, equinox and PyTorch whose gradients PCP must share with them; a family is loaded when asked for."""

import importlib

import numpy as np

from tests.corpus.case import Case

FAMILIES = {
    "elementwise": "JAX",
    "special": "JAX",
    "indexing": "JAX",
    "updating": "JAX",
    "reductions": "JAX",
    "linear_algebra": "JAX",
    "control": "JAX",
    "convolution": "JAX",
    "complex_numbers": "JAX",
    "numerics": "JAX",
    "refusals": "JAX",
    "flax_layers": "flax",
    "flax_models": "flax",
    "equinox_models": "equinox",
    "torch_layers": "PyTorch",
    "torch_models": "PyTorch",
}
"""Every family of cases, and the framework it needs: functions of JAX, or modules of a library."""

OF_JAX = tuple(family for family, framework in FAMILIES.items() if framework == "JAX")


def cases_of(family: str) -> list[Case]:
    """The cases of a family."""
    kind = "functions" if family in OF_JAX else "modules"
    cases: list[Case] = importlib.import_module(f"tests.corpus.{kind}.{family}").CASES
    return cases


def sampled(families: tuple[str, ...], each: int, seed: int = 0) -> list[tuple[str, Case]]:
    """The same `each` cases of every family in every run, with the families' names."""
    rng = np.random.default_rng(seed)
    chosen = []
    for family in families:
        cases = cases_of(family)
        for index in sorted(rng.choice(len(cases), min(each, len(cases)), replace=False)):
            chosen.append((family, cases[index]))
    return chosen
