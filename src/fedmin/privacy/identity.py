"""Who a party is: its key, its certificate, and the authority that both ends trust.

    make_request(folder, "a")       at the site: a key that never leaves the folder, and a request
    sign(...)                       at the authority (authority.py): a certificate
    Identity.load(folder)           what a party shows: name, role, key, certificate, authority
    Trust(authority, revoked)       what a party believes: the name behind a certificate, or why not

A party's folder:

    key.pem            its private key, ECDSA on P-256; for its owner only
    request.pem        PKCS#10: what the authority is sent
    certificate.pem    what the authority sent back, with
    authority.pem      its own certificate, and
    revoked.pem        the certificates that are not to be believed any more, signed by it
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import verification

from fedmin.core.files import write_whole
from fedmin.privacy.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REQUEST,
    REVOKED,
    USAGE,
    KeysError,
    Role,
    Said,
    alternatives,
    check_name,
    day,
    host_name,
    name_in,
    number_of,
    own_key,
    public_bytes,
    read_certificate,
    read_key,
    read_list,
    said_by,
    subject_of,
)

WARN_DAYS = 30  # before the end of a certificate

# ---------------------------------------------------------------- asking for a certificate


def make_request(
    folder: str | Path, name: str, role: Role = "site", hosts: Sequence[str] = ()
) -> Path:
    """Make a private key in a folder, and a request for a certificate beside it: its path.

    >>> import tempfile
    >>> from fedmin.privacy.identity import make_request
    >>> make_request(tempfile.mkdtemp() + "/a", "a").name
    'request.pem'
    """
    check_name(name)
    folder = Path(folder)
    if role not in USAGE:
        raise KeysError(f"a party is a site or a server, not {role!r}")
    if role == "server" and not hosts:
        raise KeysError(f"server {name} needs the host names or addresses that sites call it by")
    if role == "site" and hosts:
        raise KeysError(f"site {name} needs no hosts: nobody calls it")
    for host in hosts:
        _check_host(host)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = own_key(folder / KEY, folder / REQUEST, folder / CERTIFICATE)
    return _write_request(folder, key, Said(name, role, tuple(hosts)))


def renew_request(folder: str | Path) -> Path:
    """A new request for the key and the certificate in a folder: its path.

    The authority signs it because it holds the same key as the certificate before; that one is
    good until its end, so nothing has to stop.
    """
    folder = Path(folder)
    key, certificate = read_key(folder / KEY), read_certificate(folder / CERTIFICATE)
    _fits(folder, key, certificate)
    return _write_request(folder, key, said_by(certificate, str(folder / CERTIFICATE)))


def _write_request(folder: Path, key: ec.EllipticCurvePrivateKey, said: Said) -> Path:
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject_of(said.name))
        .add_extension(alternatives(said), critical=False)
        .add_extension(x509.ExtendedKeyUsage([USAGE[said.role]]), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_whole(folder / REQUEST, request.public_bytes(Encoding.PEM))
    return folder / REQUEST


def _check_host(host: str) -> None:
    try:
        ip_address(host)
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if not re.fullmatch(rf"{label}(\.{label})*", host) or len(host) > 253:
            raise KeysError(
                f"{host!r} is no host name and no address; give fed.example.org or 192.0.2.7, "
                f"without a port"
            ) from None


def _fits(folder: Path, key: Any, certificate: x509.Certificate) -> None:
    if public_bytes(key.public_key()) != public_bytes(certificate.public_key()):
        raise KeysError(
            f"{folder / KEY} is not the key of {folder / CERTIFICATE}: was another request "
            f"signed than {folder / REQUEST}?"
        )


# ---------------------------------------------------------------- believing a certificate


class Trust:
    """What a party believes: certificates of one authority that are in time and not revoked.

    The list of revoked certificates is read again at every question, so that a new one counts at
    once; without it, or with an older one than before, nobody is believed.

    >>> import tempfile
    >>> from fedmin.privacy.authority import make_authority, sign
    >>> from fedmin.privacy.identity import Trust, make_request
    >>> home = tempfile.mkdtemp()
    >>> authority = make_authority(f"{home}/authority")
    >>> signed = sign(f"{home}/authority", make_request(f"{home}/a", "a"))
    >>> trust = Trust(authority.read_bytes(), f"{home}/authority/revoked.pem")
    >>> trust.name_of((signed / "certificate.pem").read_bytes())
    'a'
    """

    def __init__(self, authority: bytes, revoked: str | Path | None = None):
        self.authority = read_certificate(authority)
        self.revoked = None if revoked is None else Path(revoked)
        self._number = 0
        self._list()

    def name_of(
        self, certificate: bytes, role: Role = "site", *, now: datetime | None = None
    ) -> str:
        """The name behind a certificate in PEM; a `KeysError` says why it is not believed."""
        return self.check(read_certificate(certificate), role, now=now).name

    def check(
        self,
        certificate: x509.Certificate,
        role: Role,
        *,
        now: datetime | None = None,
        renew: str = "fedmin keys renew",
    ) -> Said:
        """What a certificate says, if it is believed; `renew` is the command for one that ended."""
        now = datetime.now(UTC) if now is None else now
        said = said_by(certificate, "the certificate")
        whose, of = f"the certificate of {said.role} {said.name}", self.authority
        if not _issued(certificate, of):
            raise KeysError(f"{whose} is not signed by the authority {name_in(of)}")
        if said.role != role:
            raise KeysError(f"{whose} is for a {said.role}, and cannot be used as a {role}'s")
        _in_time(of, f"the certificate of the authority {name_in(of)}", now, "fedmin keys renew")
        _in_time(certificate, whose, now, renew)
        revoked = self._list()
        if revoked is not None and revoked.get_revoked_certificate_by_serial_number(
            certificate.serial_number
        ):
            raise KeysError(f"{whose} was revoked by the authority")
        self._whole_check(certificate, said, now)
        return said

    def _list(self) -> x509.CertificateRevocationList | None:
        if self.revoked is None:
            return None
        found = read_list(self.revoked, self.authority)
        number = number_of(found)
        if number < self._number:
            raise KeysError(
                f"{self.revoked} is list {number}, older than list {self._number}, which was "
                f"there before; bring the newest from the authority"
            )
        self._number = number
        return found

    def _whole_check(self, certificate: x509.Certificate, said: Said, now: datetime) -> None:
        """The library's own judgement by the rules for certificates, after ours in plain words."""
        policy = (
            verification.PolicyBuilder()
            .store(verification.Store([self.authority]))
            .time(now.astimezone(UTC).replace(tzinfo=None))
        )
        try:
            if said.role == "site":
                policy.build_client_verifier().verify(certificate, [])
            else:
                policy.build_server_verifier(host_name(said.hosts[0])).verify(certificate, [])
        except (verification.VerificationError, IndexError) as error:
            words = f"the certificate of {said.role} {said.name} breaks the rules for certificates"
            raise KeysError(f"{words}: {error}") from None


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _in_time(certificate: x509.Certificate, whose: str, now: datetime, command: str) -> None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < first:
        raise KeysError(
            f"{whose} is not valid before {day(first)}, and it is {day(now)}: is the clock right?"
        )
    if now > last:
        raise KeysError(f"{whose} has expired on {day(last)}; renew it with: {command}")


# ---------------------------------------------------------------- being someone


@dataclass(frozen=True)
class Identity:
    """What a party shows of itself, and what it needs to check others: PEM bytes, all of it.

    >>> import tempfile
    >>> from fedmin.privacy.authority import make_authority, sign
    >>> from fedmin.privacy.identity import Identity, make_request
    >>> home = tempfile.mkdtemp()
    >>> _ = make_authority(f"{home}/authority")
    >>> _ = sign(f"{home}/authority", make_request(f"{home}/a", "a"), out=f"{home}/a")
    >>> me = Identity.load(f"{home}/a")
    >>> me.name, me.role
    ('a', 'site')
    """

    name: str
    role: Role
    key: bytes
    certificate: bytes
    authority: bytes
    revoked: Path
    ends: datetime

    @classmethod
    def load(cls, folder: str | Path, *, now: datetime | None = None) -> "Identity":
        """Read a party's folder; a `KeysError` says what does not fit, a warning what ends soon."""
        folder = Path(folder)
        now = datetime.now(UTC) if now is None else now
        if not folder.is_dir():
            raise KeysError(
                f"there is no folder of keys {folder}; make it with: fedmin keys site NAME, or at "
                f"the server: fedmin keys server NAME --host HOST"
            )
        key = read_key(folder / KEY)
        if not (folder / CERTIFICATE).exists():
            raise KeysError(
                f"there is no {folder / CERTIFICATE} yet; the authority makes it with: "
                f"fedmin keys sign {folder / REQUEST}"
            )
        certificate = read_certificate(folder / CERTIFICATE)
        _fits(folder, key, certificate)
        authority = (folder / AUTHORITY).read_bytes() if (folder / AUTHORITY).exists() else b""
        if not authority:
            raise KeysError(f"there is no {folder / AUTHORITY}; it comes with the certificate")
        role = said_by(certificate, str(folder / CERTIFICATE)).role
        renew = f"fedmin keys renew {folder}"
        said = Trust(authority, folder / REVOKED).check(certificate, role, now=now, renew=renew)
        ends = min(certificate.not_valid_after_utc, read_certificate(authority).not_valid_after_utc)
        secret, shown = (folder / KEY).read_bytes(), certificate.public_bytes(Encoding.PEM)
        found = cls(said.name, role, secret, shown, authority, folder / REVOKED, ends)
        if words := found.warning(now):
            warnings.warn(
                f"{folder}: {words}; renew with: fedmin keys renew {folder}", stacklevel=2
            )
        return found

    def trust(self) -> Trust:
        """What this party believes of others."""
        return Trust(self.authority, self.revoked)

    def warning(self, now: datetime | None = None) -> str:
        """That the certificate, or the authority's, ends within a month; "" if it does not."""
        left = self.ends - (datetime.now(UTC) if now is None else now)
        if left > timedelta(days=WARN_DAYS):
            return ""
        return f"the certificate of {self.role} {self.name} ends on {day(self.ends)}"
