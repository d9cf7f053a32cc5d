"""The authority of a run: it makes the certificates by which Shepherd and Workers know each other.

The authority is private to its run, so nothing depends on public names or addresses. A Shepherd proves that it is the
Shepherd (name `SHEPHERD_NAME`, use `serverAuth`). A worker is the common name of its certificate (use `clientAuth`; to those
that connect to it, name `WORKER_NAME` and use `serverAuth`). Keys are EC P-256 and are written readable by their owner only.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pcp.distributed.wire.identity.credentials import (
    CertificateProblem,
    Credentials,
    common_name,
    read_pem,
    write_private,
)
from pcp.distributed.wire.identity.revocations import Revocations

SHEPHERD_NAME = "shepherd.pcp.internal"
"""The name in every Shepherd's certificate, whatever its address."""

WORKER_NAME = "worker.pcp.internal"
"""The name in every worker's certificate. Who connects to a worker also compares the common name: any worker has this one."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_CLOCK_SKEW = datetime.timedelta(minutes=10)
"""By which a clock may be behind that of the machine that made the authority."""


class Authority:
    """Makes certificates that Shepherd and Workers of one run trust, and takes them back.

    The folder holds `authority.key`, `authority.crt`, `issued.txt` (serial number, kind and name of every
    certificate) and `revoked.txt` (see `Revocations`). Make one by `create`, open it by `load`.
    """

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.folder = folder
        self._key = key
        self._certificate = certificate

    @property
    def revocations(self) -> Revocations:
        """The certificates that were taken back."""
        return Revocations(self.folder / "revoked.txt")

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], *, name: str = "PCP run", days: int = 3650
    ) -> "Authority":
        """Makes a new authority.

        Arguments:
            folder: where it will live; it is created, readable by its owner only.
            name: what its certificate is called.
            days: how long it lasts.

        Raises:
            CertificateProblem: the folder holds one already, or cannot be written.
        """
        folder = Path(folder)
        if (folder / "authority.key").exists():
            raise CertificateProblem(
                f"{folder} already holds an authority; load it, or choose another folder: certificates "
                "issued by the old one would stop working"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _own_certificate(key, name, days)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CertificateProblem(f"cannot make the folder {folder} for an authority: {error}") from error
        write_private(folder / "authority.crt", certificate.public_bytes(Encoding.PEM))
        write_private(folder / "issued.txt", b"")
        write_private(folder / "revoked.txt", b"")
        write_private(folder / "authority.key", _key_pem(key))
        return cls(folder, key, certificate)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Authority":
        """Opens an authority that was made before.

        Raises:
            CertificateProblem: there is none in the folder, or it is damaged.
        """
        folder = Path(folder)
        try:
            key = load_pem_private_key(read_pem(folder / "authority.key", "authority"), password=None)
            certificate = x509.load_pem_x509_certificate(read_pem(folder / "authority.crt", "authority"))
        except ValueError as error:
            raise CertificateProblem(f"the authority in {folder} is damaged: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise CertificateProblem(
                f"the key and the certificate of the authority in {folder} do not belong together"
            )
        return cls(folder, key, certificate)

    def renew(self, days: int = 3650) -> None:
        """Replace the certificate by one of the same key that lasts longer; what the key signed stays signed.

        Key files hold the certificate that they were made with: they are made anew, too.
        """
        self._certificate = _own_certificate(self._key, common_name(self._certificate), days)
        write_private(self.folder / "authority.crt", self._certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        kind: Literal["worker", "shepherd"] = "worker",
        hosts: Iterable[str] = (),
        *,
        days: int = 365,
    ) -> Credentials:
        """Makes a key and a certificate.

        Arguments:
            name: who it is for: at most 64 letters, digits, `.`, `_` and `-`. A worker is known by it.
            kind: what it may be used as.
            hosts: further names and addresses that a Shepherd's certificate is valid for.
            days: how long it lasts.

        Raises:
            CertificateProblem: the name cannot be used.
        """
        if not _NAME.fullmatch(name):
            raise CertificateProblem(
                f"{name!r} cannot be the name of a {kind}: use at most 64 letters, digits, '.', '_' and '-'"
            )
        if kind not in ("worker", "shepherd"):
            raise CertificateProblem(f"certificates are for a 'worker' or a 'shepherd', not for {kind!r}")
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH]
        if kind == "worker":
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        names = [WORKER_NAME] if kind == "worker" else [SHEPHERD_NAME, *hosts]
        # As old as the authority: made while a clock is ahead, it would be of no use before that time.
        begins, issuer = self._certificate.not_valid_before_utc, common_name(self._certificate)
        builder = (
            _builder(name, issuer, key.public_key(), days, begins)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        with open(self.folder / "issued.txt", "a", encoding="utf-8") as issued:
            issued.write(f"{certificate.serial_number:x} {kind} {name}\n")
        return Credentials(
            certificate.public_bytes(Encoding.PEM),
            _key_pem(key),
            self._certificate.public_bytes(Encoding.PEM),
        )

    def sign(self, content: bytes) -> bytes:
        """The authority's signature of some bytes; `Credentials.is_signed` checks it."""
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))

    def revoke(self, name: str) -> int:
        """Takes back every certificate that was issued to a name.

        Running Shepherds notice when the next connection is made.

        Returns:
            How many certificates are now revoked that were not before.

        Raises:
            CertificateProblem: none was ever issued to it.
        """
        lines = (self.folder / "issued.txt").read_text(encoding="utf-8").splitlines()
        serials = {int(serial, 16) for serial, _, owner in map(str.split, lines) if owner == name}
        if not serials:
            raise CertificateProblem(
                f"no certificate was issued to {name!r} by the authority in {self.folder}"
            )
        return self.revocations.add(serials, comment=name)


def _own_certificate(key: ec.EllipticCurvePrivateKey, name: str, days: int) -> x509.Certificate:
    begins = datetime.datetime.now(datetime.UTC) - _CLOCK_SKEW
    return (
        _builder(name, name, key.public_key(), days, begins)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: str, issuer: str, public_key: ec.EllipticCurvePublicKey, days: int, begins: datetime.datetime
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
