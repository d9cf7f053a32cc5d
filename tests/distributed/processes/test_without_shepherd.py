"""Workers that exchange in pairs go on while the Shepherd is dead, which counts on when it is back; a newcomer gets a share."""

import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.processes.command import Command
from tests.distributed.processes.test_by_hand import fails, key_of, start_worker

STEPS, EVERY = 800, 8
TOML = """
model = "gpt2-nano"
data = "{corpus}"
workers = 2
algorithm = "noloco"
steps = {steps}
inner_steps = {every}
batch = 2
learning_rate = 0.0001
warmup_steps = 20
evaluate_every = 0
checkpoint_every = 0
"""


def exchanges(worker: Command) -> list[dict[str, Any]]:
    """What a worker told of its exchanges, so far."""
    return [record for record in worker.records if "exchange" in record]


def share_of(worker: Command) -> str:
    """The samples of its first lease."""
    lease: str = worker.wait_for(lambda record: record.get("lease"))["lease"]
    return lease


def reaches(number: int) -> Any:
    return lambda record: record.get("exchange", 0) >= number


@pytest.mark.runs
@pytest.mark.timeout(400)
def test_training_goes_on_without_the_shepherd(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, run = tmp_path / "run.toml", tmp_path / "run"
    plan.write_text(TOML.format(corpus=corpus, steps=STEPS, every=EVERY), encoding="utf-8")
    shepherd = Command(["shepherd", str(plan), "--run", str(run)], tmp_path)
    with shepherd, contextlib.ExitStack() as others:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        keys = {name: key_of(name, run, capsys) for name in ("alice", "bob", "carol", "dan")}
        deaf = fails(start_worker(address, keys["dan"], tmp_path))
        assert "the workers of this run exchange with each other, and this one cannot be reached" in deaf
        assert "start it with --listen HOST:PORT, for example --listen 0.0.0.0:7434" in deaf
        listen = ("--listen", "127.0.0.1:0")
        (run / "paused").touch()  # nobody does everything before the others have begun
        with (
            start_worker(address, keys["alice"], tmp_path, *listen) as alice,
            start_worker(address, keys["bob"], tmp_path, *listen) as bob,
        ):
            for worker in (alice, bob):
                worker.wait_for(lambda record: record.get("reason") == "ready")
            (run / "paused").unlink()
            assert not any("," in share_of(worker) for worker in (alice, bob))
            carol = others.enter_context(start_worker(address, keys["carol"], tmp_path, *listen))
            assert "," in share_of(carol), "who comes last gets a part of what each other has left"
            workers = {"alice": alice, "bob": bob, "carol": carol}
            for worker in workers.values():
                worker.wait_for(reaches(5))
            shepherd.process.send_signal(signal.SIGKILL)
            shepherd.process.wait()
            before = [len(exchanges(worker)) for worker in workers.values()]
            alice.wait_for(lambda record: record.get("state") == "lost")
            last = STEPS // EVERY // 2
            for worker in workers.values():
                worker.wait_for(reaches(last))
            alone = [
                exchanges(worker)[count:] for worker, count in zip(workers.values(), before, strict=True)
            ]
            with Command(["shepherd", str(run)], tmp_path) as successor:
                for name in workers:
                    resumed = successor.wait_for(
                        lambda record, name=name: record.get("worker") == name and record.get("lease")
                    )
                    assert resumed["state"] == "training"
                assert successor.end() == 0, successor.said
                assert [worker.end() for worker in workers.values()] == [0, 0, 0]
                rounds = [record for record in successor.records if "round" in record]
    [merged] = rounds
    assert (merged["contributions"], merged["tokens"]) == (3, 2 * STEPS * 2 * 64)
    for worker, told in zip(workers.values(), alone, strict=True):
        assert len(told) >= 5
        losses = [record["loss"] for record in told]
        assert losses[-1] < losses[0] - 0.02, losses  # how far it has come by then is a matter of speed
        assert any(record["partner"] for record in told)
        numbers = [record["exchange"] for record in exchanges(worker)]
        assert numbers == sorted(set(numbers)), (
            "each is an exchange of its own, and who fell behind caught up"
        )
        assert len(numbers) < STEPS // EVERY, "each gave a part of its lease to who came last"
    partners = [bool(record["partner"]) for told in alone for record in told]
    assert sum(partners) >= 0.4 * len(partners), "one of three is alone each time, which one is drawn"
