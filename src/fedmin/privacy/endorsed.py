"""The key that a site signs secure sums with, and why the others believe that it is the site's.

It is an Ed25519 key, derived from the private key of the site's certificate, so that it is the same
after every start. The site endorses it by a signature of its certificate's key; every other site
checks the certificate by the authority that it trusts itself, whatever the server says.
"""

from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedmin.privacy.certificates import KeysError
from fedmin.privacy.identity import Identity, Trust

DERIVED = b"fedmin identity of secure sums 1"
ENDORSED = b"fedmin endorses the signing key 1"


def signing_key(identity: Identity) -> bytes:
    """The private key that a party signs secure sums with: 32 bytes."""
    key = load_pem_private_key(identity.key, None)
    secret = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return HKDF(hashes.SHA256(), 32, None, DERIVED).derive(secret)


def endorsement(identity: Identity) -> dict[str, str]:
    """What a site says of its signing key, in words: the key, the certificate, a signature.

    >>> import tempfile
    >>> from fedmin.privacy.authority import make_authority, sign
    >>> from fedmin.privacy.endorsed import believed, endorsement
    >>> from fedmin.privacy.identity import Identity, make_request
    >>> home = tempfile.mkdtemp()
    >>> _ = make_authority(f"{home}/authority")
    >>> _ = sign(f"{home}/authority", make_request(f"{home}/a", "a"), out=f"{home}/a")
    >>> me = Identity.load(f"{home}/a")
    >>> believed(me.trust(), "a", endorsement(me)) == endorsement(me)["key"]
    True
    """
    public = Ed25519PrivateKey.from_private_bytes(signing_key(identity)).public_key()
    key = public.public_bytes_raw()
    own: Any = load_pem_private_key(identity.key, None)
    signature = own.sign(_statement(identity.name, key), ec.ECDSA(hashes.SHA256()))
    return {
        "key": key.hex(), "certificate": identity.certificate.decode(),
        "signature": signature.hex(),
    }  # fmt: skip


def _statement(name: str, key: bytes) -> bytes:
    return ENDORSED + len(name.encode()).to_bytes(4, "little") + name.encode() + key


def believed(trust: Trust, name: str, words: Any) -> str:
    """The signing key of site `name`, in hex; a `KeysError` says why it is not believed."""
    if not isinstance(words, Mapping):
        raise KeysError(f"there is no signing key of site {name}")
    try:
        pem, key, signature = (str(words[each]) for each in ("certificate", "key", "signature"))
        found = trust.name_of(pem.encode())
        if found != name:
            raise KeysError(f"the signing key of site {name} comes with the certificate of {found}")
        public: Any = x509.load_pem_x509_certificate(pem.encode()).public_key()
        statement = _statement(name, bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), statement, ec.ECDSA(hashes.SHA256()))
    except (KeyError, ValueError, InvalidSignature) as error:
        if isinstance(error, KeysError):
            raise
        raise KeysError(f"the signing key of site {name} is not endorsed by it") from None
    if len(bytes.fromhex(key)) != 32:
        raise KeysError(f"the signing key of site {name} is none")
    return key
