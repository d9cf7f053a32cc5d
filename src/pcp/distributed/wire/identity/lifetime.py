"""How long certificates still hold: who uses one that has ended is refused by everybody, and should hear of it before."""

import datetime

from cryptography import x509

from pcp.distributed.wire.identity.credentials import CertificateProblem, Credentials

WARNED = datetime.timedelta(days=30)
"""So long before its end a certificate is warned of."""


class CertificateExpired(CertificateProblem):
    """A certificate has ended."""


def endings(credentials: Credentials, remedy: str, now: datetime.datetime | None = None) -> list[str]:
    """What ends soon of a participant's own certificate and of its authority's, in words.

    Arguments:
        remedy: what makes new ones, as a clause.
        now: the time, of this machine's clock unless given.

    Raises:
        CertificateExpired: one has ended.
    """
    now = datetime.datetime.now(datetime.UTC) if now is None else now
    warnings = []
    for what, pem in (
        ("authority of the run", credentials.authority),
        (f"key {credentials.name!r}", credentials.certificate),
    ):
        until = x509.load_pem_x509_certificate(pem).not_valid_after_utc
        if until <= now:
            raise CertificateExpired(
                f"the {what} expired on {until:%Y-%m-%d}, so nobody who checks it connects (this machine's clock says "
                f"{now:%Y-%m-%d}); {remedy}"
            )
        if until - now <= WARNED:
            warnings.append(f"the {what} expires on {until:%Y-%m-%d}, in {(until - now).days} days; {remedy}")
    return warnings
