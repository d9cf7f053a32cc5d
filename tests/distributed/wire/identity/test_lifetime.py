"""A certificate that has ended is refused, and one that ends soon is warned of, with what to do."""

import datetime
from pathlib import Path

import pytest

from pcp.cli import main
from pcp.cli.keys import check_lifetime
from pcp.distributed.wire import Authority
from pcp.distributed.wire.identity.lifetime import WARNED, CertificateExpired, endings
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder

DAY = datetime.timedelta(days=1)


def test_before_and_after_the_end(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    held = Authority.create(tmp_path, days=100).issue("hub", "shepherd", days=50)
    assert endings(held, "renew it") == []
    assert endings(held, "renew it", now + 50 * DAY - WARNED - DAY) == []
    [soon] = endings(held, "renew it", now + 45 * DAY)
    assert (
        soon == f"the key 'hub' expires on {now + 50 * DAY:%Y-%m-%d}, in 5 days; renew it"
        or "in 4 days" in soon
    )
    with pytest.raises(
        CertificateExpired, match=r"the key 'hub' expired on .*nobody .* connects .*; renew it"
    ):
        endings(held, "renew it", now + 51 * DAY)
    with pytest.raises(CertificateExpired, match="the authority of the run expired on"):
        endings(held, "renew it", now + 101 * DAY)


def test_the_authority_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", TrainingConfig())
    keys = folder.path / "keys"
    held = Authority.create(keys, days=10).issue("shepherd", "shepherd")
    [warning] = check_lifetime(folder, held)
    assert "the authority of the run expires on" in warning
    assert "pcp keys worker NAME --run" in warning
    later = datetime.datetime.now(datetime.UTC) + 11 * DAY
    with pytest.raises(CertificateExpired, match=r"authority of the run expired .*pcp keys renew --run"):
        endings(held, warning.partition("; ")[2], later)
    signature = Authority.load(keys).sign(b"the run")
    assert main(["keys", "renew", "--run", str(folder.path)]) == 0
    renewed = Authority.load(keys).issue("shepherd", "shepherd")
    assert check_lifetime(folder, renewed) == []
    assert renewed.is_signed(b"the run", signature), "what was signed before is signed still"
    with pytest.raises(CertificateExpired):
        endings(renewed, "", later + 3650 * DAY)


def test_somebody_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder.create(tmp_path / "run", TrainingConfig())
    assert main(["keys", "worker", "--run", str(tmp_path / "run")]) == 2
    assert "whose key? Give a name: pcp keys worker NAME" in capsys.readouterr().err
