"""What one participant of a run holds: its key, its certificate, and that of the authority it trusts."""

import datetime
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pcp.errors import PCPError

_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----\s*", re.DOTALL)


class CertificateProblem(PCPError):
    """A key, a certificate or an authority cannot be made, read or used."""


@dataclass(frozen=True)
class Credentials:
    """What one participant needs to prove who it is and to check the others.

    Arguments:
        certificate: its certificate (PEM).
        key: its private key (PEM).
        authority: certificate of the run's authority (PEM).
    """

    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return f"Credentials(name={self.name!r}, serial={self.serial:x})"  # never the key

    @property
    def name(self) -> str:
        """The common name in the certificate."""
        return common_name(x509.load_pem_x509_certificate(self.certificate))

    @property
    def serial(self) -> int:
        """The certificate's serial number."""
        return x509.load_pem_x509_certificate(self.certificate).serial_number

    @property
    def expires(self) -> datetime.datetime:
        """When the certificate ends."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def may_listen(self) -> bool:
        """Whether others can check this certificate when they connect."""
        extensions = x509.load_pem_x509_certificate(self.certificate).extensions
        try:
            uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except x509.ExtensionNotFound:
            return False
        return ExtendedKeyUsageOID.SERVER_AUTH in uses

    def is_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether a signature of some bytes is that of the run's authority."""
        key = x509.load_pem_x509_certificate(self.authority).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        try:
            key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    def save_bundle(self, path: str | os.PathLike[str]) -> None:
        """Writes key, certificate and authority into one PEM file that only its owner can read."""
        write_private(Path(path), self.key + self.certificate + self.authority)

    @classmethod
    def load_bundle(cls, path: str | os.PathLike[str]) -> "Credentials":
        """Reads what `save_bundle` wrote.

        Raises:
            CertificateProblem: the file is not there, or does not hold a key and two certificates that fit, or they expired.
        """
        content = read_pem(Path(path), "key file")
        blocks: dict[bytes, list[bytes]] = {}
        for match in _PEM_BLOCK.finditer(content):
            blocks.setdefault(match.group(1), []).append(match.group(0))
        keys, certificates = blocks.get(b"PRIVATE KEY", []), blocks.get(b"CERTIFICATE", [])
        if len(keys) != 1 or len(certificates) != 2:
            raise CertificateProblem(
                f"{path} holds {len(keys)} private keys and {len(certificates)} certificates; a key file "
                "made by `pcp keys` holds one key, its certificate and that of the authority"
            )
        credentials = cls(certificates[0], keys[0], certificates[1])
        credentials._check(path)
        return credentials

    def _check(self, path: object) -> None:
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            authority = x509.load_pem_x509_certificate(self.authority)
            key = load_pem_private_key(self.key, password=None)
            certificate.verify_directly_issued_by(authority)
        except Exception as error:  # the library raises many kinds, none of them ours
            raise CertificateProblem(
                f"{path} is damaged: {type(error).__name__} {error}; ask for a new key file"
            ) from error
        if key.public_key() != certificate.public_key():
            raise CertificateProblem(f"the private key in {path} does not belong to the certificate in it")
        if self.expires < datetime.datetime.now(datetime.UTC):
            raise CertificateProblem(
                f"{path} expired on {self.expires:%Y-%m-%d}; ask for a new key file "
                "(`pcp keys worker NAME --run FOLDER`), unless the clock of this machine is wrong"
            )


def common_name(certificate: x509.Certificate) -> str:
    """The one common name of a certificate."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise CertificateProblem(f"the certificate names {len(names)} participants; expected one")
    return names[0].value


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, all of it or nothing."""
    # The mode is set when the file is made: it is never readable by others, not even for a moment.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        raise CertificateProblem(f"cannot write {path}: {error}") from error


def read_pem(path: Path, what: str) -> bytes:
    """The content of a file, or a `CertificateProblem` that says which file it is."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateProblem(f"cannot read the {what} {path}: {error.strerror}") from error
