"""`make simulated-share` counts what is there: what it replaces and what it leaves out still have these names."""

from pcp.distributed.worker.training import plans
from pcp.distributed.worker.ways import wire
from tests.distributed.simulator.share import LEFT_OUT, ROOT, InThisProcess, in_this_process


def test_the_confined_process_is_replaced() -> None:
    confined, admit = wire.TrainingProcess, plans.admit
    with in_this_process():
        assert wire.TrainingProcess is InThisProcess
        assert plans.admit({}, "cpu:0", 1, 1.0) == {}
    assert (wire.TrainingProcess, plans.admit) == (confined, admit)


def test_what_is_left_out_is_there() -> None:
    assert [each for each in LEFT_OUT if not (ROOT / each).exists()] == []
