"""SASL authentication with PLAIN and SCRAM."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping

from logstore.errors import (
    IllegalSaslStateError,
    InvalidConfigurationError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from logstore.runtime import Random, random_source
from logstore.security.scram import (
    HASHES,
    MIN_ITERATIONS,
    SALT_BYTES,
    ClientFirst,
    ScramCredential,
    ScramExchange,
)

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)
"""The supported mechanisms, in the order in which servers offer them."""

MAX_MESSAGE_BYTES = 524_288
"""Maximum size of a SASL token (default of `sasl.server.max.receive.size`)."""

_NONCE_BYTES = 24


class Credentials:
    """Users with their passwords and SCRAM credentials.

    Parameters
    ----------
    passwords : mapping of str to str
        Passwords by user name.
    mechanisms : iterable of str
        The mechanisms that clients may use, by default all.
    rng : Random, optional
        Source of salts and nonces, by default the operating system. Tests pass a seeded generator.

    Raises
    ------
    InvalidConfigurationError
        A mechanism is unknown, or a user name or password is empty.

    Notes
    -----
    Deriving the SCRAM keys takes about 3 ms per user. Deriving them on first use would reveal by
    the response time whether a user exists.
    """

    def __init__(
        self,
        passwords: Mapping[str, str],
        mechanisms: Iterable[str] = MECHANISMS,
        rng: Random | None = None,
    ) -> None:
        wanted = {each.upper() for each in mechanisms}
        if not wanted or not wanted.issubset(MECHANISMS):
            raise InvalidConfigurationError(
                f"unknown SASL mechanism in {sorted(wanted)}; supported: {', '.join(MECHANISMS)}"
            )
        for user, password in passwords.items():
            texts: tuple[object, object] = user, password
            if not all(isinstance(each, str) and each for each in texts):
                raise InvalidConfigurationError(f"user {user!r} needs a name and a password")
        self.mechanisms = tuple(each for each in MECHANISMS if each in wanted)
        self._rng = random_source() if rng is None else rng
        self._passwords = dict(passwords)
        self._scram: dict[tuple[str, str], ScramCredential | None] = {}
        self._secret = self._rng.randbytes(32)
        for mechanism in HASHES:
            if mechanism in self.mechanisms:
                for user in self._passwords:
                    self.scram(mechanism, user)

    def check_password(self, user: str, password: str) -> bool:
        """Return whether a password is correct, in the same time for known and unknown users."""
        known = self._passwords.get(user)
        wanted, given = (
            hmac.digest(self._secret, each.encode(), "sha256") for each in (known or "", password)
        )
        return hmac.compare_digest(wanted, given) and known is not None

    # -- SCRAM ---------------------------------------------------------------------------

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the SCRAM credential of a user, or None if there is none."""
        if (mechanism, user) not in self._scram and user in self._passwords:
            salt = self._rng.randbytes(SALT_BYTES)
            credential = ScramCredential.of_password(mechanism, self._passwords[user], salt)
            self._scram[mechanism, user] = credential
        return self._scram.get((mechanism, user))

    def scram_users(self) -> list[str]:
        """Return the sorted names of users with SCRAM credentials."""
        users = {*self._passwords, *(user for _, user in self._scram)}
        return [
            user
            for user in sorted(users)
            if any(self.scram(mechanism, user) is not None for mechanism in HASHES)
        ]

    def set_scram(self, mechanism: str, user: str, credential: ScramCredential) -> None:
        """Set or replace a SCRAM credential."""
        self._scram[mechanism, user] = credential

    def delete_scram(self, mechanism: str, user: str) -> bool:
        """Delete a SCRAM credential. Return whether it existed."""
        existed = self.scram(mechanism, user) is not None
        if existed:
            self._scram[mechanism, user] = None
        return existed

    def begin_scram(self, mechanism: str, first: ClientFirst) -> ScramExchange:
        """Start a SCRAM exchange, which does not reveal whether the user exists."""
        nonce = b64encode(self._rng.randbytes(_NONCE_BYTES)).decode()
        # An unknown user's salt also depends only on name and mechanism. No proof matches the keys,
        # because no password hashes to them.
        text = f"{mechanism}\0{first.name}".encode()
        salt = hmac.digest(self._secret, text, "sha256")[:SALT_BYTES]
        nobody = ScramCredential(salt, self._secret, self._secret, MIN_ITERATIONS)
        credential = self._scram.get((mechanism, first.name)) or nobody
        return ScramExchange(mechanism, first, credential, nonce)


class SaslServer:
    """The server side of the SASL exchange on one connection.

    Parameters
    ----------
    credentials : Credentials
    max_message_bytes : int
        Maximum size of a token.

    Attributes
    ----------
    mechanism : str or None
        The chosen mechanism, or None if the client has not chosen a mechanism.
    principal : str or None
        The authenticated principal, such as `User:ann`, or None before authentication.
    """

    def __init__(
        self, credentials: Credentials, max_message_bytes: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._credentials = credentials
        self._max_message_bytes = max_message_bytes
        self._exchange: ScramExchange | None = None
        self._user = ""
        self.mechanism: str | None = None
        self.principal: str | None = None

    def choose(self, mechanism: str) -> None:
        """Choose a mechanism.

        Raises
        ------
        UnsupportedSaslMechanismError
        IllegalSaslStateError
            A mechanism has already been chosen.
        """
        if self.mechanism is not None:
            raise IllegalSaslStateError("a SASL mechanism has already been chosen")
        offered = self._credentials.mechanisms
        if mechanism not in offered:
            raise UnsupportedSaslMechanismError(f"{mechanism} is not one of {', '.join(offered)}")
        self.mechanism = mechanism

    def answer(self, data: bytes) -> bytes:
        """Return the response to a client token. The last token sets `principal`.

        Raises
        ------
        SaslAuthenticationFailedError
            Authentication failed. The exchange is over.
        IllegalSaslStateError
            No mechanism was chosen, or the exchange is over.
        """
        if self.mechanism is None or self.principal is not None:
            raise IllegalSaslStateError("unexpected SASL token")
        if len(data) > self._max_message_bytes:
            raise SaslAuthenticationFailedError(f"SASL token of {len(data)} bytes is too large")
        if self.mechanism == PLAIN:
            self._user = self._plain(data)
        elif self._exchange is None:
            first = ClientFirst.of(data)
            self._user = first.name
            self._exchange = self._credentials.begin_scram(self.mechanism, first)
            return self._exchange.challenge.encode()
        else:
            signature = self._exchange.finish(data)
            self.principal = f"User:{self._user}"
            return signature
        self.principal = f"User:{self._user}"
        return b""

    def _plain(self, data: bytes) -> str:
        """Check a PLAIN token (RFC 4616). Return its user."""
        try:
            tokens = data.decode().split("\0")
        except UnicodeDecodeError:
            tokens = []
        if len(tokens) != 3:
            raise SaslAuthenticationFailedError("malformed PLAIN token: expected three UTF-8 parts")
        other, user, password = tokens
        if not self._credentials.check_password(user, password):
            raise SaslAuthenticationFailedError("wrong user or password")
        if other not in ("", user):
            raise SaslAuthenticationFailedError("authorization ids are not supported")
        return user


def checked_credentials(sasl: Credentials | Mapping[str, str]) -> Credentials:
    """Return credentials, creating them from a mapping of users to passwords.

    Raises
    ------
    InvalidConfigurationError
    """
    if isinstance(sasl, Credentials):
        return sasl
    if not isinstance(sasl, Mapping):
        raise InvalidConfigurationError(
            f"sasl must be a mapping of users to passwords, not {sasl!r}"
        )
    return Credentials(sasl)
