"""Which states a worker keeps."""

from pcp.distributed.messages import Blob
from pcp.distributed.worker.training.kept_states import LEASES_KEPT, KeptStates


def state(number: int) -> Blob:
    return Blob(bytes([number]) * 32, 9)


def test_states_go_with_the_oldest_lease_unless_a_later_one_has_them_too() -> None:
    removed: list[Blob] = []
    kept = KeptStates(removed.append)
    for number in range(LEASES_KEPT):
        kept.keep((state(2 * number), state(2 * number + 1)))
    assert removed == []
    kept.keep((state(1), state(100)))
    assert removed == [state(0)]
