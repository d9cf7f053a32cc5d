"""What cannot be imported is refused with the operation and the user's line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.execution import run

import pcp
from pcp.importers.torch.arrays import UnsupportedContainer
from pcp.importers.torch.element_types import DynamicShape, UnknownElementType
from pcp.importers.torch.exporting import CannotExport
from pcp.importers.torch.imported import HiddenParameters, NoModule
from pcp.importers.torch.interpreting import CannotImport, RandomWithoutSeed, UnsupportedOperations
from pcp.importers.torch.signature import ConstantInContainer, MutatedInput

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def unsupported(x: torch.Tensor) -> torch.Tensor:
    scaled = torch.special.erfcx(x)
    return scaled + torch.special.i1(x)


def test_all_unsupported_operations_are_listed_with_their_lines() -> None:
    with pytest.raises(UnsupportedOperations) as caught:
        pcp.from_torch(unsupported, X)
    message = str(caught.value)
    assert "2 operations of this module have no counterpart" in message
    for name, line in (
        ("special_erfcx.default", "torch.special.erfcx(x)"),
        ("special_i1.default", "torch.special.i1(x)"),
    ):
        assert name in message
        assert line in message
    assert f'File "{__file__}", line {unsupported.__code__.co_firstlineno + 1}, in unsupported' in message


def on_values(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


def test_control_flow_on_values_is_refused() -> None:
    with pytest.raises(
        CannotExport, match=r"torch.export refuses Function: .*\n(.*\n)*expected a module whose control flow"
    ):
        pcp.from_torch(on_values, X)


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


def on_mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum()


LINEAR = torch.nn.Linear(3, 2)
ON_MASK = r"gives a tensor of shape \(u0.*depends on the values of tensors; .*torch.where(.*\n)*.*from File .*_errors.py"
RANDOM = r"draws random numbers:\n  rand_like.default\n(.*\n)*call module.eval\(\).*seed"
REFUSED: list[tuple[type[pcp.PCPError], str, Callable[..., Any], tuple[Any, ...]]] = [
    (RandomWithoutSeed, RANDOM, torch.rand_like, (X,)),
    (DynamicShape, ON_MASK, on_mask, (X,)),
    (MutatedInput, "writes into .*work on a clone", in_place, (X,)),
    (HiddenParameters, "uses LINEAR, a Linear, whose parameters would become constants", lambda x: LINEAR(x), (X,)),
    (ConstantInContainer, "2.5 stands among the tensors of an argument", lambda x: x[0] * x[1], ([X, 2.5],)),
    (UnknownElementType, "element type torch.float8_e5m2; expected one of", lambda x: x.float(), (X.to(torch.float8_e5m2),)),
    (
        RandomWithoutSeed,
        r"draws random numbers:\n  scaled_dot_product_attention.default\n    File .*test_errors(.*\n)*.*a seed",
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        (X,),
    ),
    (NoModule, r"the class Linear was given .*model = Linear\(in_features, out_features\)", torch.nn.Linear, (X,)),
    (NoModule, "int was given to from_torch; expected a torch.nn.Module", 3, ()),  # type: ignore[list-item]  # is the point
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "function", "inputs"), REFUSED)
def test_refusals(error: type[pcp.PCPError], message: str, function: Any, inputs: Any) -> None:
    with pytest.raises(error, match=message):
        pcp.from_torch(function, *inputs)


class Boxed:
    """A container that PyTorch knows and PCP does not."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


torch.utils._pytree.register_pytree_node(
    Boxed, lambda box: ([box.x], None), lambda parts, _: Boxed(*parts), serialized_type_name="tests.Boxed"
)


def test_an_unknown_container_is_refused() -> None:
    with pytest.raises(
        UnsupportedContainer, match=r"a Boxed was found .*wrap the module .*leave use_cache out"
    ):
        pcp.from_torch(lambda x: Boxed(x + 1), X)


def test_recurrent_dropout_and_projections_are_refused() -> None:
    x = torch.randn(5, 2, 4)
    with pytest.raises(CannotImport, match=r"lstm.input: .*dropout=0.3 between its layers; expected 0"):
        pcp.from_torch(torch.nn.LSTM(4, 3, 2, dropout=0.3), x)
    with pytest.raises(CannotImport, match=r"lstm.input: .*proj_size"):
        pcp.from_torch(torch.nn.LSTM(4, 3, proj_size=2), x)


def through_unfold(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.unfold(1, 2, 2)[0] = 1
    return y


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            through_unfold,
            r"unfold_backward.default: .*made by unfold, .* write into the tensor itself, by slices",
        ),
        (
            lambda x: torch.as_strided_scatter(x, x[:2, :2], (2, 2), (1, 1)),
            r"holds some of them twice; .*work on a clone",
        ),
        (
            lambda x: x.t().as_strided((2,), (1,)),
            r"as_strided.default: the operand has strides \(1, 3\) .*\.contiguous\(\)",
        ),
        (
            lambda x: torch.linalg.cholesky_ex(x[:, :2])[1],
            r"linalg_cholesky_ex.default: info was asked for, .* without _ex",
        ),
        (
            lambda x: torch.nn.functional.rrelu(x, training=True),
            r"rrelu draws its slopes in training; .*module.eval\(\)",
        ),
        (
            lambda x: torch.embedding_bag(x, torch.tensor([0, 1]), torch.tensor([0]))[2],
            r"_embedding_bag.*: embedding_bag returns where its elements came from, too; .*functional.embedding_bag",
        ),
        (
            lambda x: torch.linalg.inv(x[:, :2]) @ torch.linalg.tensorinv(x[:, :2], 1),
            r"_linalg_check_errors.default",
        ),
    ],
)
def test_what_a_program_cannot_say_is_refused_with_a_remedy(function: Any, message: str) -> None:
    with pytest.raises((CannotImport, UnsupportedOperations), match=rf"(?s){message}.*File "):
        pcp.from_torch(function, X)


def test_one_tensor_given_twice_is_two_arguments() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * x if x is y else x + 3 * y

    program = pcp.from_torch(function, X, X).program
    assert np.allclose(run(program, {}, np.ones((2, 3)), np.zeros((2, 3))), 1)


def test_arguments_and_results_keep_their_nesting() -> None:
    class Module(torch.nn.Module):
        def forward(
            self, pair: Any, scale: float, *, extra: dict[str, torch.Tensor], flag: bool = True
        ) -> Any:
            first, second = pair
            return {
                "sum": first + second * scale,
                "list": [extra["b"], (extra["a"],)],
                "none": None if flag else first,
            }

    inputs = ((X, 2 * X), 3.0)
    imported = pcp.from_torch(Module(), *inputs, keywords={"extra": {"b": X + 1, "a": X + 2}, "flag": True})
    names = [entry.name for entry in imported.program.arguments]
    assert names == ["pair.0", "pair.1", "extra.a", "extra.b"]
    x = X.numpy()
    found = run(imported.program, {}, (x, 2 * x), {"a": x + 2, "b": x + 1})
    assert np.allclose(found["sum"], 7 * x)
    assert np.allclose(found["list"][0], x + 1)
    assert np.allclose(found["list"][1][0], x + 2)
    assert found["none"] is None


def test_weights_share_the_memory_of_the_module() -> None:
    module = torch.nn.Linear(3, 2)
    imported = pcp.from_torch(module, pcp.spec((4, 3), "f32"))
    assert imported.weights["weight"].ctypes.data == module.weight.data_ptr()
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    bound = pcp.plan(imported.program).bind(imported.weights)
    assert np.allclose(np.asarray(bound.run(x)), module(torch.from_numpy(x)).detach().numpy(), 1e-5, 1e-6)


def test_half_precision_computes_as_torch() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Softmax(-1)
    ).bfloat16()
    x = torch.randn(4, 8).bfloat16()
    imported = pcp.from_torch(module, x)
    assert str(imported.weights["0.weight"].dtype) == "bfloat16"
    found = run(imported.program, imported.weights, x.float().numpy())
    assert str(found.dtype) == "bfloat16"
    assert np.allclose(found.astype(np.float32), module(x).float().detach().numpy(), 0.02, 0.01)


def test_random_rows_have_their_distributions() -> None:
    def draws(x: torch.Tensor) -> Any:
        return {
            "rand": torch.rand(2000),
            "rand_like": torch.rand_like(x),
            "randn": torch.randn(2000),
            "randn_like": torch.randn_like(x),
            "bernoulli": torch.bernoulli(torch.full((2000,), 0.3)),
            "p": torch.ops.aten.bernoulli.p(x, 0.3),
            "randint": torch.randint(7, (2000,)),
            "low": torch.randint(2, 7, (2000,)),
            "int_like": torch.randint_like(x, 7),
            "low_like": torch.randint_like(x, 2, 7),
            "perm": torch.randperm(50),
            "dropout": F.dropout(torch.ones(2000), 0.25),
        }

    imported = pcp.from_torch(draws, torch.zeros(2000), seed=1)
    _, found = run(imported.program, {}, imported.buffers, np.zeros(2000))
    means = {
        "rand": 0.5,
        "rand_like": 0.5,
        "randn": 0,
        "randn_like": 0,
        "bernoulli": 0.3,
        "p": 0.3,
        "randint": 3,
        "low": 4,
        "int_like": 3,
        "low_like": 4,
        "dropout": 1,
    }
    for name, mean in means.items():
        assert abs(found[name].mean() - mean) < 0.15, name
        assert len(np.unique(found[name])) > 1, name
    assert abs(found["randn"].std() - 1) < 0.1
    assert set(np.unique(found["low"])) == {2, 3, 4, 5, 6}
    assert sorted(found["perm"]) == list(range(50))
    assert found["perm"].tolist() != list(range(50))
    assert set(np.unique(found["dropout"])) == {0, np.float32(4 / 3)}


def test_a_function_without_a_signature_has_numbered_arguments() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    imported = pcp.from_torch(torch.nn.functional.cosine_similarity, x, y)
    assert [entry.name for entry in imported.program.arguments] == ["input_0", "input_1"]
    found = pcp.plan(imported.program).run({}, x.numpy(), y.numpy())
    np.testing.assert_allclose(
        found, torch.nn.functional.cosine_similarity(x, y).numpy(), rtol=1e-5, atol=1e-6
    )
