"""Every row of the table of PyTorch's operations beside PyTorch: values to 1e-10 and gradients to 1e-9, in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tests.execution import run
from tests.peers.from_torch.cases import Case
from tests.peers.from_torch.rows import FAMILIES, RANDOM, REFUSED

import pcp
from pcp.importers.torch import exporting
from pcp.importers.torch.interpreting import Interpreter
from pcp.importers.torch.table import TABLE


def listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]


class Cases(torch.nn.Module):
    """All cases of a family side by side: a weighted sum of the floating-point outputs, and all outputs."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, floats: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> Any:
        total, outputs = torch.zeros((), dtype=torch.float64), {}
        for number, case in enumerate(self.cases):
            given = [
                floats.get(name, others.get(name))
                for name in (f"{number}.{i}" for i in range(len(case.inputs)))
            ]
            for i, output in enumerate(listed(case.function(*given))):
                outputs[f"{number}.{i}"] = output
                if output.is_floating_point() and output.requires_grad:
                    weights = torch.arange(output.numel(), dtype=torch.float64).reshape(output.shape)
                    total = total + (torch.nan_to_num(output) * torch.cos(weights + number)).sum()
        return total, outputs


@pytest.mark.filterwarnings(
    "ignore:torch.cholesky is", "ignore:torch.triangular_solve is", "ignore:torch.searchsorted"
)
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_those_of_torch(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = FAMILIES[family]
    computed: set[str] = set()
    called = Interpreter._called

    def recorded(self: Interpreter, node: Any) -> Any:
        computed.add(str(node.target).removeprefix("aten."))
        return called(self, node)

    monkeypatch.setattr(Interpreter, "_called", recorded)
    monkeypatch.setattr(exporting, "_is_composed_of_rows", lambda *_: False)  # `test_composed` looks at those
    inputs = {f"{n}.{i}": a for n, case in enumerate(cases) for i, a in enumerate(case.inputs)}
    floats = {
        name: torch.from_numpy(array.copy()).requires_grad_()
        for name, array in inputs.items()
        if array.dtype == np.float64
    }
    others = {name: torch.from_numpy(array) for name, array in inputs.items() if name not in floats}
    module = Cases(cases)
    imported = pcp.from_torch(module, floats, others)
    total, outputs = module(floats, others)
    total.backward()
    program = pcp.value_and_grad(imported.program, wrt=1, has_aux=True)
    (_, found), gradients = run(program, {}, {n: inputs[n] for n in floats}, {n: inputs[n] for n in others})
    wrong = []
    for name, expected in outputs.items():
        shown = f"{cases[int(name.split('.')[0])].rows} output {name}"
        got, wanted = found[name], expected.detach().numpy()
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            wrong.append(f"{shown}: {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}")
        elif not np.allclose(
            got, wanted, 1e-10, 1e-10 if wanted.dtype == np.float64 else 1e-6, equal_nan=True
        ):
            wrong.append(f"{shown}: {got} is not {wanted}")
    for name, tensor in floats.items():
        wanted = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        if not np.allclose(gradients[name], wanted, 1e-9, 1e-9):
            wrong.append(
                f"gradient {cases[int(name.split('.')[0])].rows} {name}: {gradients[name]} is not {wanted}"
            )
    assert not wrong, "\n".join(wrong)
    assert {name for case in cases for name in case.rows.split()} - computed == set()


def test_every_row_has_a_case() -> None:
    tested = {name for cases in FAMILIES.values() for case in cases for name in case.rows.split()}
    apart = {name for name, row in TABLE.items() if row.is_composed}
    assert set(TABLE) - tested - {*RANDOM, *REFUSED, *apart} == set()
    assert tested | {*RANDOM, *REFUSED} <= set(TABLE)
