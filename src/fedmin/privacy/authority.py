"""A federation's own certificate authority: it says who is who, and who is no longer.

    make_authority(folder)        once, at whoever the sites trust to know them; best not the server
    sign(folder, request)         a certificate for a site or for the server
    revoke(folder, name)          whatever was signed for a name is not to be believed any more
    renew_authority(folder)       the same key, a later end

The authority's folder:

    authority.key      its private key: whoever has it can be anybody
    authority.pem      its certificate, which every party has
    revoked.pem        the list of revoked certificates, signed
    issued/            every certificate that was ever signed, by its serial number
    send/NAME/         what a party is sent: certificate.pem, authority.pem, revoked.pem
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedmin.core import checks
from fedmin.core.files import write_whole
from fedmin.privacy.certificates import (
    AUTHORITY,
    CERTIFICATE,
    REVOKED,
    USAGE,
    KeysError,
    Role,
    Said,
    alternatives,
    day,
    number_of,
    own_key,
    public_bytes,
    read_certificate,
    read_key,
    read_list,
    said_by,
    subject_of,
)

SECRET = "authority.key"
AUTHORITY_DAYS, DAYS = 3650, 365
SKEW = timedelta(minutes=5)  # clocks differ: what is signed now is valid a little earlier


class Issued(NamedTuple):
    """A certificate that an authority has signed."""

    name: str
    role: Role
    serial: int
    begins: datetime
    ends: datetime
    revoked: bool
    certificate: x509.Certificate

    def good(self, now: datetime) -> bool:
        """Whether it is believed now."""
        return not self.revoked and self.begins <= now <= self.ends


def make_authority(
    folder: str | Path,
    name: str = "fedmin authority",
    days: int = AUTHORITY_DAYS,
    *,
    now: datetime | None = None,
) -> Path:
    """Make a certificate authority in a folder: the path of its certificate.

    >>> import tempfile
    >>> from fedmin.privacy.authority import make_authority
    >>> make_authority(tempfile.mkdtemp() + "/authority").name
    'authority.pem'
    """
    checks.at_least("days", days, 1)
    if not 1 <= len(name) <= 64:
        raise KeysError(f"an authority's name has 1 to 64 letters, got {len(name)}: {name!r}")
    folder, now = Path(folder), _now(now)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = own_key(folder / SECRET, folder / AUTHORITY)
    certificate = _self_signed(key, subject_of(name), days, now)
    write_whole(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))
    _write_list(folder, certificate, key, [], 1, now)
    return folder / AUTHORITY


def renew_authority(
    folder: str | Path, days: int = AUTHORITY_DAYS, *, now: datetime | None = None
) -> Path:
    """A new certificate for the same authority: what it has signed stays good."""
    checks.at_least("days", days, 1)
    folder, now = Path(folder), _now(now)
    key, old = _opened(folder)
    certificate = _self_signed(key, old.subject, days, now)
    listed = read_list(folder / REVOKED, old)
    write_whole(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))
    _write_list(folder, certificate, key, list(listed), number_of(listed) + 1, now)
    return folder / AUTHORITY


def sign(
    folder: str | Path,
    request: str | Path,
    days: int = DAYS,
    *,
    renew: bool = False,
    out: str | Path | None = None,
    now: datetime | None = None,
) -> Path:
    """Sign a request: the folder with what its maker is sent (`out`, or send/NAME).

    A name whose certificate is good is refused; with `renew` it gets a later one for the same key.
    """
    checks.at_least("days", days, 1)
    folder, now = Path(folder), _now(now)
    key, authority = _opened(folder)
    asked = read_request(request)
    said = said_by(asked, str(request))
    _check_new(folder, said, asked, renew, now)
    ends = now + timedelta(days=days)
    if ends > authority.not_valid_after_utc:
        left = (authority.not_valid_after_utc - now).days
        raise KeysError(
            f"the authority itself ends on {day(authority.not_valid_after_utc)}: sign for at most "
            f"{left} days, or renew it first with: fedmin keys renew {folder}"
        )
    certificate = _for_party(said, asked.public_key(), authority, key, now, ends)
    pem = certificate.public_bytes(Encoding.PEM)
    _make(folder / "issued")
    write_whole(folder / "issued" / f"{certificate.serial_number:040x}.pem", pem)
    sent = folder / "send" / said.name if out is None else Path(out)
    _make(sent)
    write_whole(sent / AUTHORITY, (folder / AUTHORITY).read_bytes())
    write_whole(sent / REVOKED, (folder / REVOKED).read_bytes())
    write_whole(sent / CERTIFICATE, pem)
    return sent


def revoke(folder: str | Path, name: str, *, now: datetime | None = None) -> Path:
    """Revoke every certificate of a name that has not ended: the path of the new list."""
    folder, now = Path(folder), _now(now)
    key, authority = _opened(folder)
    known = issued(folder)
    mine = [each for each in known if each.name == name and now <= each.ends]
    if not mine:
        near = checks.nearest(name, sorted({each.name for each in known}) or ["nobody"])
        raise KeysError(f"{folder} has signed nothing for {name!r} that has not ended; {near}")
    if all(each.revoked for each in mine):
        raise KeysError(f"whatever was signed for {name!r} is revoked already")
    listed = read_list(folder / REVOKED, authority)
    lines = list(listed) + [
        x509.RevokedCertificateBuilder().serial_number(each.serial).revocation_date(now).build()
        for each in mine
        if not each.revoked
    ]
    return _write_list(folder, authority, key, lines, number_of(listed) + 1, now)


def issued(folder: str | Path) -> list[Issued]:
    """Every certificate that an authority has signed, in the order of their beginnings."""
    folder = Path(folder)
    listed = read_list(folder / REVOKED, read_certificate(folder / AUTHORITY))
    found = []
    for path in (folder / "issued").glob("*.pem"):
        certificate = read_certificate(path)
        said, serial = said_by(certificate, str(path)), certificate.serial_number
        revoked = listed.get_revoked_certificate_by_serial_number(serial) is not None
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        found.append(Issued(said.name, said.role, serial, first, last, revoked, certificate))
    return sorted(found, key=lambda each: (each.begins, each.name, each.serial))


def read_request(path: str | Path) -> x509.CertificateSigningRequest:
    """A request, made by the one who has its private key."""
    path = Path(path)
    if not path.exists():
        raise KeysError(f"there is no request {path}")
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except ValueError as error:
        raise KeysError(f"{path} is no request in PEM: {error}") from None
    if not request.is_signature_valid:
        raise KeysError(f"{path} was changed on its way: its signature does not fit")
    if not isinstance(request.public_key(), ec.EllipticCurvePublicKey):
        raise KeysError(f"{path} is for a key that is on no elliptic curve; make it by fedmin keys")
    return request


def _now(now: datetime | None) -> datetime:
    return (datetime.now(UTC) if now is None else now).replace(microsecond=0)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _opened(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The key and the certificate of an authority, if they belong together."""
    if not (folder / SECRET).exists():
        raise KeysError(f"{folder} is no authority: it has no {SECRET}; make one with: "
                        f"fedmin keys authority {folder}")  # fmt: skip
    key, certificate = read_key(folder / SECRET), read_certificate(folder / AUTHORITY)
    if public_bytes(key.public_key()) != public_bytes(certificate.public_key()):
        raise KeysError(f"{folder / SECRET} is not the key of {folder / AUTHORITY}")
    return key, certificate


def _check_new(
    folder: Path, said: Said, asked: x509.CertificateSigningRequest, renew: bool, now: datetime
) -> None:
    """Refuse a second holder of a name."""
    for each in issued(folder):
        if each.name.lower() != said.name.lower() or not each.good(now):
            continue
        whose = f"{each.role} {each.name} has a certificate that is good until {day(each.ends)}"
        same = public_bytes(each.certificate.public_key()) == public_bytes(asked.public_key())
        if (each.name, each.role) != (said.name, said.role) or not same:
            raise KeysError(
                f"{whose}, for another key or role; if that key is lost, revoke it first with: "
                f"fedmin keys revoke {each.name} --authority {folder}"
            )
        if not renew:
            raise KeysError(f"{whose}; sign with --renew to give it a later end")


def _self_signed(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, days: int, now: datetime
) -> x509.Certificate:
    public = key.public_key()
    return (
        _begun(subject, subject, public, now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _for_party(
    said: Said,
    public: Any,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    ends: datetime,
) -> x509.Certificate:
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return (
        _begun(subject_of(said.name), authority.subject, public, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USAGE[said.role]]), critical=False)
        .add_extension(alternatives(said), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(above, critical=False)
        .sign(key, hashes.SHA256())
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, public: Any, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends)
    )


def _usage(**for_what: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: for_what.get(name, False) for name in names})


def _write_list(
    folder: Path,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    lines: list[x509.RevokedCertificate],
    number: int,
    now: datetime,
) -> Path:
    """The list ends with the authority: one that ran out early would stop everybody."""
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - SKEW)
        .next_update(authority.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    for line in lines:
        listed = listed.add_revoked_certificate(line)
    path = folder / REVOKED
    write_whole(path, listed.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return path
