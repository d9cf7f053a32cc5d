"""The loop when it is cut: by a report, by a signal within a step, and when nothing is left to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.training.tiny_run import Prepared, assert_equal
from tests.training.tiny_run import prepared as prepared

from pcp.planning import Path
from pcp.training import checkpoint
from pcp.training.loop import train
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import load_state


def noting(steps: list[dict[str, Any]]) -> Callable[[dict[str, Any]], None]:
    """Keeps what is said of steps."""
    return lambda record: steps.append(record) if "step" in record else None


def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(prepared: Prepared) -> None:
    whole, folder = prepared("whole")
    records: list[dict[str, Any]] = []
    parameters = train(whole, folder, noting(records))
    assert [record["step"] for record in records] == [5, 10, 12]
    assert all("validation_loss" in record for record in records)
    assert checkpoint.steps(folder.checkpoints) == [4, 8, 12]

    _, cut = prepared("cut")
    seen: list[dict[str, Any]] = []

    def interrupt(record: dict[str, Any]) -> None:
        noting(seen)(record)
        if record.get("step") == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(prepare(cut), cut, interrupt)
    assert checkpoint.steps(cut.checkpoints) == [4, 5]
    step, state, metadata = load_state(cut)
    assert (step, int(state["step"]), metadata["tokens"]) == (5, 5, 5 * 2 * 8)
    assert_equal(train(prepare(cut), cut, noting(seen)), parameters)
    assert_equal(load_state(cut)[1], load_state(folder)[1])
    for ours, theirs in zip(seen, records, strict=True):
        for key in ("step", "loss", "validation_loss", "learning_rate", "gradient_norm"):
            assert ours[key] == theirs[key], (ours["step"], key)

    # A finished run has nothing left to do.
    assert_equal(train(prepare(cut), cut, pytest.fail), parameters)


def test_a_step_that_was_torn_is_not_saved(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recipe, folder = prepared("torn")
    whole = recipe.batches.batch(0)

    class Torn:
        """A plan of which the sixth step is interrupted after the state was donated."""

        path = Path.plain(recipe.step)
        steps = 0

        def run(self, state: Any, batch: Any) -> Any:
            assert batch[0].shape == whole[0].shape
            Torn.steps += 1
            if Torn.steps == 6:
                raise KeyboardInterrupt
            return state, {"loss": np.float32(1), "learning_rate": 1.0, "gradient_norm": 1.0}

        def bind(self, *_: Any) -> Any:
            return self

    monkeypatch.setattr("pcp.training.loop.plan", lambda *_, **__: Torn())
    monkeypatch.setattr("pcp.training.loop.planned_step", lambda *_, **__: Torn())
    monkeypatch.setattr("pcp.training.loop.plan_record", lambda _: {})
    monkeypatch.setattr(type(recipe), "validation_loss", lambda *_: 1.0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, lambda _: None)
    assert checkpoint.steps(folder.checkpoints) == [4]
    assert "interrupted within step 6; --resume continues from the newest checkpoint" in caplog.text
