"""`pcp keys`: make the certificates of a Shepherd and its Workers."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from pcp.distributed.wire import Authority, Credentials, Revocations
from pcp.distributed.wire.identity.lifetime import endings
from pcp.errors import PCPError
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Make and revoke the key files of Workers. Each run has its own certificate authority.",
    "epilog": """\
A Shepherd and its Workers talk over TLS, and both sides have certificates. The run's authority in FOLDER/keys
issues them; no public certificate authority is needed. A key file holds a worker's private key, its certificate and the
certificate of the authority. It is valid for one year, for this run, and for one name; two workers need two names.

`revoke` makes every key of a name invalid. A running Shepherd notices within a second and closes the worker's connection. A
new key for the same name is valid again.

Keep FOLDER/keys secret: whoever has authority.key can make keys for workers, and sign programs. Workers run only programs that
the authority signed, when the run began. So begin a run on a machine that you trust, make a key with `shepherd`, and leave
authority.key there when you take the folder to the Shepherd's machine: whoever takes that over cannot send other programs.

examples:
  pcp keys worker alice --run runs/gpt2-nano           writes alice.pem; give it to the worker over a safe channel
  pcp worker --connect 192.0.2.7:7433 --key alice.pem  run the worker with it
  pcp keys revoke alice --run runs/gpt2-nano           alice is no longer admitted
  pcp keys shepherd hub --run runs/gpt2-nano           the Shepherd on `hub` needs no authority.key any more
  pcp keys renew --run runs/gpt2-nano                  before the authority's certificate ends, after ten years
""",
}


SHEPHERD_FILE = "shepherd.pem"
"""In the folder of keys: what a Shepherd uses where the authority's key is not."""


class NoName(PCPError):
    """Nobody is named whose key is to be made or revoked."""


class KeyFileExists(PCPError):
    """A key file would be overwritten."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "action",
        choices=["worker", "revoke", "shepherd", "renew"],
        help="make a key file, or revoke the keys of a worker, or make a key for a Shepherd without the authority, or a "
        "certificate of the authority that lasts longer",
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="the worker's name: letters, digits, '.', '_' and '-'; for `shepherd`, the name of its machine",
    )
    parser.add_argument("--run", required=True, type=Path, help="folder of the run")
    parser.add_argument("--out", type=Path, help="key file to write (default: NAME.pem)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    authority = authority_of(RunFolder.open(arguments.run))
    said: dict[str, object]
    if arguments.action == "renew":
        authority.renew()
        text = (
            f"the authority of {arguments.run} has a new certificate; now make new keys: pcp keys worker NAME"
        )
        print(json.dumps({"renewed": str(arguments.run)}) if arguments.json else text)
        return 0
    if arguments.name is None:
        raise NoName(f"whose key? Give a name: pcp keys {arguments.action} NAME --run {arguments.run}")
    if arguments.action == "revoke":
        count = authority.revoke(arguments.name)
        said = {"revoked": count, "worker": arguments.name}
        text = f"{arguments.name}: {count} certificates revoked"
    elif arguments.action == "shepherd":
        path = arguments.out or arguments.run / "keys" / SHEPHERD_FILE
        authority.issue("shepherd", "shepherd", [arguments.name]).save_bundle(path)
        said = {"shepherd": arguments.name, "key": str(path)}
        text = f"{path}: the key of the Shepherd on {arguments.name}; keys/authority.key may now be kept elsewhere"
    else:
        path = arguments.out or Path(f"{arguments.name}.pem")
        if path.exists():
            raise KeyFileExists(
                f"{path} exists already; a worker may be using it. Remove it, or write another file with --out"
            )
        issued = authority.issue(arguments.name, "worker")
        for warning in check_lifetime(RunFolder.open(arguments.run), issued):
            print(f"pcp: {warning}", file=sys.stderr)
        issued.save_bundle(path)
        said = {"worker": arguments.name, "key": str(path)}
        text = f"{path}: the key of worker {arguments.name}; keep it secret"
    print(json.dumps(said) if arguments.json else text)
    return 0


def authority_of(folder: RunFolder) -> Authority:
    """The authority of a run, made where there is none yet.

    Raises:
        CertificateProblem: its key is not here, although its certificate is.
    """
    path = folder.path / "keys"
    if (path / "authority.crt").exists():
        return Authority.load(path)
    return Authority.create(path)


def check_lifetime(folder: RunFolder, credentials: Credentials) -> list[str]:
    """What of a run's certificates ends soon, in words.

    Raises:
        CertificateExpired: one has ended; the message says how there are new ones.
    """
    return endings(
        credentials,
        f"make a new certificate for the authority, pcp keys renew --run {folder.path}, and then a new key for each "
        f"worker, pcp keys worker NAME --run {folder.path}, and, by pcp keys shepherd, for a Shepherd without the "
        "authority's key",
    )


def identity_of(
    folder: RunFolder, host: str
) -> tuple[Credentials, Revocations, Callable[[bytes], bytes] | None]:
    """What a Shepherd needs: its key, whose keys were revoked, and what signs a new run.

    Without the authority's key it takes the key that `pcp keys shepherd` made, and nothing signs.

    Raises:
        CertificateProblem: there is neither key.
    """
    keys = folder.path / "keys"
    own = keys / SHEPHERD_FILE
    if own.exists() and not (keys / "authority.key").exists():
        return Credentials.load_bundle(own), Revocations(keys / "revoked.txt"), None
    authority = authority_of(folder)
    return authority.issue("shepherd", "shepherd", [host]), authority.revocations, authority.sign
