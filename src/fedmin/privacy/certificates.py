"""Certificates: what they say of their owner, and the files that they and their keys are kept in.

A party is a site or a server. Its certificate has its name twice: as the common name, and with its
role as fedmin://ROLE/NAME among the alternative names, where the hosts of a server are too.
"""

import os
import re
import stat
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Role = Literal["site", "server"]
USAGE = {"site": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}
KEY, REQUEST, CERTIFICATE = "key.pem", "request.pem", "certificate.pem"
AUTHORITY, REVOKED = "authority.pem", "revoked.pem"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class KeysError(ValueError):
    """A key, a certificate or a request that cannot be used; its words say what to do."""


def check_name(name: str) -> None:
    """Refuse a name that cannot be a folder, a line of a log and a part of a certificate at once.

    >>> from fedmin.privacy.certificates import check_name
    >>> check_name("../b")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedmin.privacy.certificates.KeysError: '../b' is no name for a party: at most 63 letters, ...
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise KeysError(
            f"{name!r} is no name for a party: at most 63 letters, digits, '.', '_' and '-', the "
            f"first of them a letter or a digit"
        )


# ---------------------------------------------------------------- files


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key on P-256, which every TLS library takes."""
    return ec.generate_private_key(ec.SECP256R1())


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner may read, where none is yet."""
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeysError(f"{path} is there already; it is not overwritten") from None
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def own_key(path: Path, *others: Path) -> ec.EllipticCurvePrivateKey:
    """A new private key in a file; the one that is there, if all that belongs to it is missing,
    as when something went wrong in between."""
    if path.exists() and not any(other.exists() for other in others):
        return read_key(path)
    key = new_key()
    write_key(path, key)
    return key


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key; refuse one that others on this machine may read or change."""
    data, mode = _read(path), stat.S_IMODE(path.stat().st_mode)
    if mode & 0o037:  # a group may read it where its owner wants that, and nobody may write
        raise KeysError(
            f"{path} may be read or changed by others (mode {mode:o}); run: chmod 600 {path}"
        )
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise KeysError(f"{path} is no private key in PEM: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeysError(f"{path} is no key on an elliptic curve; `fedmin keys` makes those")
    return key


def read_certificate(source: Path | bytes) -> x509.Certificate:
    """The certificate in a file or in PEM bytes."""
    data, where = (source, "it") if isinstance(source, bytes) else (_read(source), str(source))
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise KeysError(f"{where} is no certificate in PEM: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise KeysError(f"there is no {path}") from None


def public_bytes(key: Any) -> bytes:
    """A public key as bytes, to compare it with others."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(thing: Any) -> str:
    """SHA-256 of a public key, or of that in a request or a certificate: to read out by phone."""
    key = thing.public_key() if hasattr(thing, "public_key") else thing
    digest = hashes.Hash(hashes.SHA256())
    digest.update(public_bytes(key))
    words = digest.finalize().hex()
    return " ".join(words[i : i + 8] for i in range(0, len(words), 8))


def day(moment: datetime) -> str:
    """A moment as people write it."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


# ---------------------------------------------------------------- what a certificate says


class Said(NamedTuple):
    """What a certificate or a request says of its owner."""

    name: str
    role: Role
    hosts: tuple[str, ...] = ()


def subject_of(name: str) -> x509.Name:
    """A name as certificates write it."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternatives(said: Said) -> x509.SubjectAlternativeName:
    """The name once more, with the role; and the hosts of a server."""
    names: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(f"fedmin://{said.role}/{said.name}")
    ]
    return x509.SubjectAlternativeName([*names, *map(host_name, said.hosts)])


def host_name(host: str) -> x509.DNSName | x509.IPAddress:
    """A host as certificates write it."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def said_by(thing: x509.Certificate | x509.CertificateSigningRequest, where: str = "it") -> Said:
    """Name, role and hosts, if the thing says each of them once and nowhere otherwise."""
    common = [str(a.value) for a in thing.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        names = thing.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        usage = thing.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError) as error:
        raise KeysError(f"{where} does not say who it is for as fedmin's do: {error}") from None
    roles = [role for role, one in USAGE.items() if one in usage]
    if len(roles) != 1 or len(list(usage)) != 1 or len(common) != 1:
        raise KeysError(f"{where} must be for one name as a site or as a server")
    check_name(common[0])
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if uris != [f"fedmin://{roles[0]}/{common[0]}"]:
        raise KeysError(f"{where} is for {common[0]!r} as a {roles[0]}, but also says {uris}")
    hosts = (
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    )
    return Said(common[0], roles[0], hosts)  # type: ignore[arg-type]


def read_list(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList:
    """The list of revoked certificates in a file, if this authority has signed it."""
    try:
        found = x509.load_pem_x509_crl(_read(path))
    except ValueError as error:
        raise KeysError(f"{path} is no list of revoked certificates in PEM: {error}") from None
    if not found.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
        raise KeysError(f"{path} is not signed by the authority {name_in(authority)}")
    return found


def number_of(revoked: x509.CertificateRevocationList) -> int:
    """Lists are counted: a later one has a higher number."""
    return revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def name_in(certificate: x509.Certificate) -> str:
    """The common name of a certificate, whoever it is of."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()
