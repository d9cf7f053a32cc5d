"""What is refused of a loss from a file, its weights, its batch and its data, and what the messages say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.loss_files import Files, parameters, plain, samples, save_arrays, traced

import pcp
from pcp.errors import PCPError
from pcp.ir.program_file import NotAProgram
from pcp.training.data.array_file import UnreadableFile
from pcp.training.data.batches import TinyCorpus
from pcp.training.data.sample_arguments import WrongSamples
from pcp.training.data.samples import TooFewSamples
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.recipes.loss_program import MissingWeights, NotATrainableLoss, UnreadableLoss, WrongWeights

X, Y = pcp.spec((8, 3), "f32"), pcp.spec((8,), "f32")


def refused(files: Files, folder: Path, kind: type[PCPError], message: str, **settings: Any) -> None:
    with pytest.raises(kind, match=message):
        files.prepared(folder / "run", **settings)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    files = traced(tmp_path)
    gone = str(tmp_path / "gone.pcp")
    refused(files, tmp_path, UnreadableLoss, r"cannot read the loss .*gone\.pcp: .*no such file", model=gone)
    refused(
        files, tmp_path, UnreadableFile, r"cannot read arrays from .*gone\.safetensors: No such file",
        weights=str(tmp_path / "gone.safetensors"),
    )  # fmt: skip
    refused(
        files,
        tmp_path,
        UnreadableFile,
        r"cannot read arrays from .*gone\.npz",
        data=str(tmp_path / "gone.npz"),
    )


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    files = traced(tmp_path)
    files.model.write_text("loss = 3")
    refused(
        files,
        tmp_path,
        NotAProgram,
        "network.pcp is not a program: it begins with b'loss = 3'; expected a file",
    )


def _state(state: Any, x: Any, y: Any) -> Any:
    return state, pcp.mean(x) + pcp.mean(y)


PROGRAMS: dict[str, tuple[Callable[[], pcp.Program], str]] = {
    "two results": (
        lambda: pcp.trace(lambda p, x, y: (pcp.mean(x @ p["w"]), pcp.sum(y)), {"w": np.ones((3, 1), "f4")}, X, Y),
        r"is not a loss: it returns f32\[\], f32\[\]; a loss returns one floating-point scalar, or a pair of one and a",
    ),
    "a vector": (
        lambda: pcp.trace(lambda p, x, _: x @ p["w"], {"w": np.ones(3, "f4")}, X, Y),
        r"is not a loss: it returns f32\[8\]; a loss returns one floating-point scalar",
    ),
    "an integer": (
        lambda: pcp.trace(lambda p, x, _: pcp.sum(x > p["w"][None]).astype("i32"), {"w": np.ones(3, "f4")}, X, Y),
        r"is not a loss: it returns i32\[\]",
    ),
    "a state": (
        lambda: pcp.trace(lambda s, x: (s, {"l": pcp.mean(x)}), pcp.spec((), "f32", "state"), X),
        r"is not a loss: its argument s is a state that it also returns; .* Export the model in evaluation mode",
    ),
    "open sizes": (
        lambda: pcp.trace(
            lambda p, x: pcp.mean(x @ p["w"]), {"w": np.ones((3, 1), "f4")}, pcp.spec(("n", 3), "f32")
        ),
        r"network\.pcp is a loss whose sizes n are open; .* save program\.at\(n=8\), with numbers of your own",
    ),
    "no batch": (
        lambda: pcp.trace(lambda p: pcp.sum(p["hidden"]["w"]) + pcp.sum(p["out"]), parameters()),
        "takes no batch: .* found nothing",
    ),
    "two sizes": (
        lambda: pcp.trace(
            lambda p, x, y: pcp.sum(p["hidden"]["w"]) + pcp.sum(p["out"]) + pcp.mean(x) + pcp.mean(y),
            parameters(), X, pcp.spec((4,), "f32"),
        ),
        r"must have the samples along its first axis, the same number in each; found x: f32\[8,3\], y: f32\[4\]",
    ),
    "a scalar": (
        lambda: pcp.trace(
            lambda p, x, rate: rate * (pcp.sum(p["hidden"]["w"]) + pcp.sum(p["out"]) + pcp.mean(x)),
            parameters(), X, pcp.spec((), "f32"),
        ),
        r"found x: f32\[8,3\], rate: f32\[\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_are_no_loss(name: str, tmp_path: Path) -> None:
    files, (make, message) = traced(tmp_path), PROGRAMS[name]
    make().save(files.model)
    refused(files, tmp_path, NotATrainableLoss, message)


def test_weights_that_are_not_given(tmp_path: Path) -> None:
    message = (
        r"network\.pcp is trained from weights that a file holds: save them under the names of the arguments, with "
        r"safetensors\.numpy\.save_file.*give --weights weights\.safetensors; or draw them, with --weights random\. "
        r"The program takes params\.hidden\.w: f32\[3,16\], params\.out: f32\[16\], x: f32\[8,3\]"
    )
    refused(traced(tmp_path), tmp_path, MissingWeights, message, weights="")


def test_weights_for_a_model_with_its_own(tmp_path: Path) -> None:
    message = r"weights is w\.safetensors, but gpt2-nano begins with random ones; .* as in --model loss\.pcp"
    refused(
        traced(tmp_path), tmp_path, InvalidTrainingConfig, message, model="gpt2-nano", weights="w.safetensors"
    )


def _weights(**changes: Any) -> dict[str, Any]:
    nested = parameters()
    given = {"hidden.w": nested["hidden"]["w"], "out": nested["out"]} | changes
    return {name: array for name, array in given.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": None}, r"does not hold the weights of .*network\.pcp: it lacks params\.out: f32\[16\]$"),
        ({"more": np.ones(2, "f4")}, "it has more, which the program does not take$"),
        (
            {"out": None, "Out": np.ones(16, "f4")},
            r"it lacks params\.out: f32\[16\]; it has Out, which the program does not take",
        ),
        ({"out": np.ones(15, "f4")}, r"holds 'out' as float32\[15\]; the program takes float32\[16\]"),
        ({"out": np.ones(16, "f8")}, r"holds 'out' as float64\[16\]; the program takes float32\[16\]"),
        ({"out": np.ones(16, "i4")}, r"holds 'out' as int32\[16\]; the program takes float32\[16\]"),
    ],
)
def test_weights_that_do_not_fit(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    files = traced(tmp_path)
    save_arrays(files.weights, _weights(**changes))
    refused(files, tmp_path, WrongWeights, message)


def test_full_names_and_npz_are_as_good(tmp_path: Path) -> None:
    files = traced(tmp_path)
    path = tmp_path / "weights.npz"
    np.savez(path, **{f"params.{name}": array for name, array in _weights().items()})
    recipe, _ = Files(files.model, path, files.data).prepared(tmp_path / "run")
    assert (recipe.parameters["out"] == parameters()["out"]).all()


def test_a_loss_that_was_traced_with_a_batch_of_arrays(tmp_path: Path) -> None:
    """Every argument has the role of a weight then; the first is the parameters, as of `pcp.training_step`."""
    files, data = traced(tmp_path), samples(8)
    pcp.trace(
        lambda params, x, y: pcp.mean((x @ params["hidden"]["w"] @ params["out"] - y) ** 2),
        parameters(), data["x"], data["y"],
    ).save(files.model)  # fmt: skip
    recipe, _ = files.prepared(tmp_path / "run")
    assert [entry.name for entry in recipe.loss.arguments[2:]] == ["x", "y"]
    pcp.trace(lambda w, x: pcp.mean(x @ w), np.ones((3, 1), "f4"), data["x"]).save(files.model)
    save_arrays(files.weights, {"w": np.ones((3, 1), np.float32)})
    save_arrays(tmp_path / "x.safetensors", {"x": samples()["x"]})
    recipe, _ = files.prepared(tmp_path / "other", data=str(tmp_path / "x.safetensors"))
    assert list(recipe.parameters) == ["w"]


def test_weights_of_a_program_without_names(tmp_path: Path) -> None:
    files = plain(tmp_path)
    save_arrays(files.weights, {"w": np.ones((3, 16), "f4")})
    message = (
        r"it has w, which the program does not take; the program takes 0: f32\[8,3\], 1: f32\[3,16\], "
        r"2: f32\[16\], 3: f32\[8\]"
    )
    refused(files, tmp_path, WrongWeights, message)
    save_arrays(files.weights, {})
    refused(files, tmp_path, WrongWeights, "the program takes 0: ")


@pytest.mark.parametrize("role", ["weight", "input"])
def test_integer_weights(role: str, tmp_path: Path) -> None:
    files = traced(tmp_path)
    table = pcp.spec((4,), "i32", role)
    pcp.trace(lambda p, x: pcp.mean(x) * pcp.sum(p["n"]).astype("f32"), {"n": table}, X).save(files.model)
    save_arrays(files.weights, {"n": np.ones(4, np.int32)})
    message = r"holds 'n', but the argument p\.n is i32\[4\], and only floating-point arguments can be trained; leave it out"
    refused(files, tmp_path, WrongWeights, message)


def test_a_batch_that_the_program_does_not_have(tmp_path: Path) -> None:
    files = traced(tmp_path)
    message = r"batch is 12, but .*network\.pcp is a program for 8 samples; leave batch out, or set it to 8, or export"
    refused(files, tmp_path, InvalidTrainingConfig, message, batch=12)
    message = r"batch is 8, but .*network\.pcp is a program for 8 samples, 2 times a step; leave batch out, or set it to 16"
    refused(files, tmp_path, InvalidTrainingConfig, message, batch=8, accumulate=2)
    refused(
        files,
        tmp_path,
        InvalidTrainingConfig,
        "accumulate is 'x'; expected a value of type int",
        accumulate="x",
    )


@pytest.mark.parametrize(
    ("arrays", "kind", "message"),
    [
        (
            {"x": samples()["x"], "z": samples()["y"]},
            WrongSamples,
            r"has the arrays x, z; the loss takes batches of x: f32\[8,3\], y: f32\[8\]\. Name the arrays as these arguments",
        ),
        ({"x": samples()["x"]}, WrongSamples, "has the arrays x; the loss takes batches"),
        (samples() | {"z": samples()["y"]}, WrongSamples, "has the arrays x, y, z; the loss takes batches"),
        (
            {"x": samples()["x"].astype("f8"), "y": samples()["y"]},
            WrongSamples,
            r"the array 'x' of .*samples\.npz is float64\[200, 3\]; the loss takes float32\[samples, 3\]",
        ),
        (
            {"x": samples()["x"], "y": samples()["x"]},
            WrongSamples,
            r"the array 'y' of .* is float32\[200, 3\]; the loss takes float32\[samples\]",
        ),
        (
            {"x": samples(50)["x"], "y": samples(60)["y"]},
            WrongSamples,
            "have different numbers of samples: 50 in 'x', 60 in 'y'",
        ),
        (
            samples(15),
            TooFewSamples,
            "the data has 15 samples; a batch of 8 for training and one for validation need 16",
        ),
    ],
    ids=["names", "missing", "unexpected", "dtype", "shape", "lengths", "few"],
)
def test_samples_that_do_not_fit(
    arrays: dict[str, Any], kind: type[PCPError], message: str, tmp_path: Path
) -> None:
    files = traced(tmp_path)
    np.savez(files.data, **arrays)
    refused(files, tmp_path, kind, message)


def test_samples_may_be_given_in_order(tmp_path: Path) -> None:
    files = traced(tmp_path)
    np.savez(files.data, *samples().values())
    recipe, _ = files.prepared(tmp_path / "run")
    x, y = recipe.batches.batch(0)
    np.testing.assert_array_equal(np.sin(x.sum(1)), y)


def test_one_nameless_array_is_refused(tmp_path: Path) -> None:
    files = traced(tmp_path)
    with files.data.open("wb") as file:
        np.save(file, samples()["x"])
    refused(
        files, tmp_path, UnreadableFile, "holds one array; expected several by name, as np.savez writes them"
    )
    (tmp_path / "d.safetensors").write_bytes(b"no such thing")
    message = r"cannot read arrays from .*d\.safetensors: .* is not a safetensors file"
    refused(files, tmp_path, UnreadableFile, message, data=str(tmp_path / "d.safetensors"))


def test_a_text_for_a_loss_of_numbers(tmp_path: Path) -> None:
    message = (
        r"data is shakespeare, a text, but the batch of .*network\.pcp is x: f32\[8,3\], y: f32\[8\], which is not tokens and "
        r"targets; give --data an \.npz or \.safetensors file with an array for each"
    )
    refused(traced(tmp_path), tmp_path, InvalidTrainingConfig, message, data="shakespeare")


def _tokens_loss(table: Any, tokens: Any, targets: Any) -> Any:
    return pcp.nn.cross_entropy(pcp.nn.embedding(tokens, table["w"]), targets)


def test_a_text_with_more_tokens_than_the_loss_knows(tmp_path: Path) -> None:
    files, ids = traced(tmp_path), pcp.spec((4, 8), "i32")
    table = {"w": np.random.default_rng(0).normal(size=(5, 5)).astype("f4")}
    pcp.trace(_tokens_loss, table, ids, ids).save(files.model)
    save_arrays(files.weights, table)
    text = tmp_path / "text.txt"
    text.write_text("abcdef" * 100)
    message = (
        r"the tokenizer 'characters' has 6 tokens, but .*network\.pcp embeds 5; choose another --tokenizer "
        r"\(characters, bytes, bpe with --vocabulary, or the tokenizer.json of the model\), or export the loss with more"
    )
    refused(files, tmp_path, TokenOutOfRange, message, data=str(text))
    text.write_text("abcde" * 50)
    message = r"The validation part has 3 windows of 8 tokens; .*network\.pcp takes 4 at once\. Give a longer text, or"
    (tmp_path / "again").mkdir()
    refused(files, tmp_path / "again", TinyCorpus, message, data=str(text))


def test_a_loss_that_does_not_show_its_vocabulary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, ids = traced(tmp_path), pcp.spec((4, 8), "i32")
    weights = {"w": np.ones((8, 8), "f4")}
    pcp.trace(
        lambda p, a, b: pcp.mean((a.astype("f32") @ p["w"] - b.astype("f32")) ** 2), weights, ids, ids
    ).save(files.model)
    save_arrays(files.weights, weights)
    (tmp_path / "text.txt").write_text("abcdef" * 100)
    files.prepared(tmp_path / "run", data=str(tmp_path / "text.txt"))
    assert (
        "does not show the size of its vocabulary, so nothing checks that the 6 tokens of the tokenizer"
        in caplog.text
    )
