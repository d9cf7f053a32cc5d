"""The authority and its certificates; the list of those that were taken back."""

import datetime
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from pcp.distributed.wire.identity import certificates
from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME, Authority
from pcp.distributed.wire.identity.credentials import CertificateProblem, Credentials
from pcp.distributed.wire.identity.revocations import RevocationListProblem, Revocations


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_worker_gets(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("ada")
    assert issued.name == "ada"
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert certificate.serial_number == issued.serial
    assert issued.expires > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=300)
    use = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one._name for one in use] == ["serverAuth", "clientAuth"]
    issued.save_bundle(tmp_path / "ada.pem")
    assert mode(tmp_path / "ada.pem") == 0o600
    assert Credentials.load_bundle(tmp_path / "ada.pem") == issued
    assert issued.key.decode()[30:60] not in repr(issued)


def test_what_a_shepherd_gets(authority: Authority) -> None:
    issued = authority.issue("shepherd-1", "shepherd", ["10.0.0.1", "::1", "run.example"])
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [SHEPHERD_NAME, "10.0.0.1", "::1", "run.example"]
    use = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one._name for one in use] == ["serverAuth"]


def test_a_key_made_while_the_clock_is_ahead_is_good_at_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NextMonth(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "NextMonth":
            return cls.fromtimestamp(super().now(tz).timestamp() + 30 * 86400, tz)

    ahead = SimpleNamespace(datetime=NextMonth, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr(certificates, "datetime", ahead)
    issued = authority.issue("shepherd", "shepherd")
    own, root = map(x509.load_pem_x509_certificate, (issued.certificate, issued.authority))
    assert own.not_valid_before_utc == root.not_valid_before_utc < datetime.datetime.now(datetime.UTC)
    assert own.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=390)


def test_the_authority_is_private_and_lasts(authority: Authority) -> None:
    assert {path.name: mode(path) for path in authority.folder.iterdir()} == dict.fromkeys(
        ("authority.key", "authority.crt", "issued.txt", "revoked.txt"), 0o600
    )
    assert mode(authority.folder) == 0o700
    loaded = Authority.load(authority.folder)
    old, new = authority.issue("ada"), loaded.issue("grace")
    assert old.authority == new.authority
    with pytest.raises(CertificateProblem, match="already holds an authority; load it, or choose another"):
        Authority.create(authority.folder)


def test_a_folder_without_a_good_authority(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(CertificateProblem, match=r"cannot read the authority .*authority.key: No such file"):
        Authority.load(tmp_path)
    other = Authority.create(tmp_path / "other")
    (authority.folder / "authority.key").write_bytes((other.folder / "authority.key").read_bytes())
    with pytest.raises(CertificateProblem, match="the key and the certificate of the authority"):
        Authority.load(authority.folder)
    (authority.folder / "authority.key").write_bytes(b"junk")
    with pytest.raises(CertificateProblem, match="is damaged"):
        Authority.load(authority.folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(CertificateProblem, match="cannot make the folder"):
        Authority.create(tmp_path / "file" / "authority")


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", "x" * 65, "é", "a\n", ".a"])
def test_names_that_cannot_be_used(authority: Authority, name: str) -> None:
    with pytest.raises(CertificateProblem, match="cannot be the name of a worker: use at most 64 letters"):
        authority.issue(name)


def test_a_kind_that_does_not_exist(authority: Authority) -> None:
    with pytest.raises(CertificateProblem, match="for a 'worker' or a 'shepherd', not for 'king'"):
        authority.issue("ada", "king")  # type: ignore[arg-type]  # the mistake under test


def test_key_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    ada, grace = authority.issue("ada"), authority.issue("grace")
    old = authority.issue("old", days=0)
    stranger = Authority.create(tmp_path / "other").issue("ada")
    path = tmp_path / "key.pem"
    with pytest.raises(CertificateProblem, match=r"cannot read the key file .*key\.pem: No such file"):
        Credentials.load_bundle(path)
    for content, text in [
        (b"junk", "holds 0 private keys and 0 certificates; a key file made by `pcp keys`"),
        (ada.key + ada.certificate, "holds 1 private keys and 1 certificates"),
        (grace.key + ada.certificate + ada.authority, "does not belong to the certificate in it"),
        (ada.key + ada.certificate + stranger.authority, "is damaged: .*ask for a new key file"),
        (ada.key.replace(b"M", b"N") + ada.certificate + ada.authority, "is damaged"),
        (old.key + old.certificate + old.authority, r"key\.pem expired on .*; ask for a new key file .*NAME"),
    ]:
        path.write_bytes(content)
        with pytest.raises(CertificateProblem, match=text):
            Credentials.load_bundle(path)


def test_revocation(authority: Authority) -> None:
    first, second, other = authority.issue("ada"), authority.issue("ada"), authority.issue("grace")
    watching = Revocations(authority.folder / "revoked.txt")
    assert first.serial not in watching
    assert authority.revoke("ada") == 2
    assert authority.revoke("ada") == 0
    assert first.serial in watching
    assert second.serial in watching
    assert other.serial not in watching
    with pytest.raises(CertificateProblem, match="no certificate was issued to 'nobody'"):
        authority.revoke("nobody")


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RevocationListProblem, match="cannot read the list of revoked certificates"):
        assert 5 in Revocations(tmp_path / "missing.txt")
    (tmp_path / "bad.txt").write_text("not a number\n")
    with pytest.raises(RevocationListProblem, match="an empty file revokes nobody"):
        assert 5 in Revocations(tmp_path / "bad.txt")
    listed = tmp_path / "list.txt"
    listed.write_text("ff ada\n\n")
    revocations = Revocations(listed)
    assert 255 in revocations
    os.remove(listed)
    with pytest.raises(RevocationListProblem, match="No such file"):
        assert 255 in revocations
