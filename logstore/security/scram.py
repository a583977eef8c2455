"""SCRAM: a client proves that it knows a password without sending it (RFC 5802, RFC 7677).

The client sends its name and a nonce, and the server responds with a salt, an iteration count and
an extended nonce. Then the client sends its proof, and the server its signature. The server stores
two keys derived from the password, which allow neither recovering the password nor impersonating
the client.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass

from logstore.errors import RequestError, SaslAuthenticationFailedError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Kafka's bounds for both mechanisms. Passwords are hashed with the minimum."""

SALT_BYTES = 16

_FIRST = re.compile(r"n,(a=[^,]*)?,n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(,.*)?", re.S)
_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.S,
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A SCRAM credential: salt, keys and iteration count.

    Attributes
    ----------
    iterations : int
        The number of hash iterations of the salted password.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Derive the credential of a password, which takes milliseconds by design."""
        name = HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def of_salted_password(
        cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Derive the credential of a salted password sent by a client.

        Raises
        ------
        RequestError
            The iteration count is outside Kafka's bounds.
        """
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise RequestError(
                f"{iterations} iterations are not in [{MIN_ITERATIONS}, {MAX_ITERATIONS}]"
            )
        name = HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted_password, b"Server Key", name), iterations)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client.

    Attributes
    ----------
    header : str
        The GS2 header before the bare message, which the final message repeats.
    bare : str
    name : str
    nonce : str
    """

    header: str
    bare: str
    name: str
    nonce: str

    @classmethod
    def of(cls, data: bytes) -> ClientFirst:
        """Parse a client-first message.

        Raises
        ------
        SaslAuthenticationFailedError
            The message is malformed, or requests channel binding or an authorization id.
        """
        text = _text(data)
        found = _FIRST.fullmatch(text)
        if found is None:
            raise SaslAuthenticationFailedError("malformed SCRAM client-first message")
        name = _name(found["name"])
        other = (found[1] or "").removeprefix("a=")
        if other and _name(other) != name:
            raise SaslAuthenticationFailedError("authorization ids are not supported")
        header, _, rest = text.partition(",")
        other, _, bare = rest.partition(",")
        return cls(f"{header},{other},", bare, name, found["nonce"])


class ScramExchange:
    """The server side of one SCRAM exchange, after the client-first message.

    Parameters
    ----------
    mechanism : str
    first : ClientFirst
    credential : ScramCredential
    nonce : str
        The server's nonce.
    """

    def __init__(
        self,
        mechanism: str,
        first: ClientFirst,
        credential: ScramCredential,
        nonce: str,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce
        salt = b64encode(credential.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={credential.iterations}"

    def finish(self, data: bytes) -> bytes:
        """Check the client's proof. Return the server-final message.

        Raises
        ------
        SaslAuthenticationFailedError
        """
        found = _FINAL.fullmatch(_text(data))
        if found is None:
            raise SaslAuthenticationFailedError("malformed SCRAM client-final message")
        binding, proof = _bytes(found["binding"]), _bytes(found["proof"])
        if binding != self._first.header.encode() or found["nonce"] != self._nonce:
            raise SaslAuthenticationFailedError("SCRAM nonce or channel binding does not match")
        credential = self._credential
        auth_message = ",".join((self._first.bare, self.challenge, found["bare"])).encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._hash)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        proves = hmac.compare_digest(hashlib.new(self._hash, key).digest(), credential.stored_key)
        if not (proves and len(proof) == len(signature)):
            raise SaslAuthenticationFailedError("wrong user or password")
        return b"v=" + b64encode(hmac.digest(credential.server_key, auth_message, self._hash))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationFailedError("SCRAM message is not UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise SaslAuthenticationFailedError("SCRAM message has invalid base64") from None


def _name(text: str) -> str:
    """Decode a SCRAM name, in which `=2C` is a comma and `=3D` an equals sign."""
    if re.search(r"=(?!2C|3D)", text):
        raise SaslAuthenticationFailedError("SCRAM message has an invalid name")
    return text.replace("=2C", ",").replace("=3D", "=")
