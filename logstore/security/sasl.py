"""SASL: how a client shows who it is, by PLAIN or SCRAM, against users and their passwords."""

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
"""Those that there are, in the order in which they are told."""

MAX_MESSAGE_BYTES = 524_288
"""Size of a client's longest message, by the default of `sasl.server.max.receive.size`."""

_NONCE_BYTES = 24


class Credentials:
    """Users, their passwords, and what SCRAM keeps of them.

    Parameters
    ----------
    passwords : mapping of str to str
        By the users' names.
    mechanisms : iterable of str
        Those that clients may use; all by default.
    rng : Random, optional
        Of salts and nonces; the machine's by default. A repeatable one is for tests.

    Raises
    ------
    InvalidConfigurationError
        An unknown mechanism, or a user without a name or a password.

    Notes
    -----
    Takes about 3 ms a user, to derive the keys of the SCRAM mechanisms. If they were derived when a
    user first authenticates, the time of the answer would tell whether there is such a user.
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
                f"SASL mechanisms {sorted(wanted)} are not all of {', '.join(MECHANISMS)}"
            )
        for user, password in passwords.items():
            texts: tuple[object, object] = user, password
            if not all(isinstance(each, str) and each for each in texts):
                raise InvalidConfigurationError(f"user {user!r} lacks a name or a password")
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
        """Tell whether a password is a user's, in the same time whatever the user."""
        known = self._passwords.get(user)
        wanted, given = (
            hmac.digest(self._secret, each.encode(), "sha256") for each in (known or "", password)
        )
        return hmac.compare_digest(wanted, given) and known is not None

    # -- SCRAM ---------------------------------------------------------------------------

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return what is kept of a user's password; None if there is no such user."""
        if (mechanism, user) not in self._scram and user in self._passwords:
            salt = self._rng.randbytes(SALT_BYTES)
            credential = ScramCredential.of_password(mechanism, self._passwords[user], salt)
            self._scram[mechanism, user] = credential
        return self._scram.get((mechanism, user))

    def scram_users(self) -> list[str]:
        """Return the users that can authenticate by SCRAM, by name."""
        users = {*self._passwords, *(user for _, user in self._scram)}
        return [
            user
            for user in sorted(users)
            if any(self.scram(mechanism, user) is not None for mechanism in HASHES)
        ]

    def set_scram(self, mechanism: str, user: str, credential: ScramCredential) -> None:
        """Let a user authenticate by SCRAM with this, whatever held before."""
        self._scram[mechanism, user] = credential

    def delete_scram(self, mechanism: str, user: str) -> bool:
        """Let a user authenticate by a mechanism no longer; False if it could not before."""
        could = self.scram(mechanism, user) is not None
        if could:
            self._scram[mechanism, user] = None
        return could

    def begin_scram(self, mechanism: str, first: ClientFirst) -> ScramExchange:
        """Return an exchange with a client.

        That of an unknown user looks like any other, and takes the same work.
        """
        nonce = b64encode(self._rng.randbytes(_NONCE_BYTES)).decode()
        # The salt of a name and a mechanism is always the same, as that of a user is; nobody has a
        # proof of the keys, which are not a hash of anything.
        text = f"{mechanism}\0{first.name}".encode()
        salt = hmac.digest(self._secret, text, "sha256")[:SALT_BYTES]
        nobody = ScramCredential(salt, self._secret, self._secret, MIN_ITERATIONS)
        credential = self._scram.get((mechanism, first.name)) or nobody
        return ScramExchange(mechanism, first, credential, nonce)


class SaslServer:
    """The server's side of one connection, from the choice of a mechanism on.

    Parameters
    ----------
    credentials : Credentials
    max_message_bytes : int
        Size of a client's longest message.

    Attributes
    ----------
    mechanism : str or None
        The one that was chosen.
    principal : str or None
        Who the client is, as `User:ann`, once it has shown it.
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
        """Begin with a mechanism.

        Raises
        ------
        UnsupportedSaslMechanismError
        IllegalSaslStateError
            One was chosen already.
        """
        if self.mechanism is not None:
            raise IllegalSaslStateError("a SASL mechanism was chosen already")
        offered = self._credentials.mechanisms
        if mechanism not in offered:
            raise UnsupportedSaslMechanismError(f"{mechanism} is none of {', '.join(offered)}")
        self.mechanism = mechanism

    def answer(self, data: bytes) -> bytes:
        """Return the answer to a client's message; `principal` is set after the last one.

        Raises
        ------
        SaslAuthenticationFailedError
            The client is not who it says; nothing more is to be heard from it.
        IllegalSaslStateError
            No mechanism was chosen, or the exchange is over.
        """
        if self.mechanism is None or self.principal is not None:
            raise IllegalSaslStateError("no message of SASL is expected now")
        if len(data) > self._max_message_bytes:
            raise SaslAuthenticationFailedError(f"a message of SASL of {len(data)} bytes")
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
        """Return the user of a message of PLAIN (RFC 4616)."""
        try:
            tokens = data.decode().split("\0")
        except UnicodeDecodeError:
            tokens = []
        if len(tokens) != 3:
            raise SaslAuthenticationFailedError("a message of PLAIN has three parts of UTF-8")
        other, user, password = tokens
        if not self._credentials.check_password(user, password):
            raise SaslAuthenticationFailedError("wrong user or password")
        if other not in ("", user):
            raise SaslAuthenticationFailedError("a client acts for itself alone")
        return user


def checked_credentials(sasl: Credentials | Mapping[str, str]) -> Credentials:
    """Return credentials, from a mapping of users to passwords too.

    Raises
    ------
    InvalidConfigurationError
    """
    if isinstance(sasl, Credentials):
        return sasl
    if not isinstance(sasl, Mapping):
        raise InvalidConfigurationError(f"sasl is a mapping of users to passwords, not {sasl!r}")
    return Credentials(sasl)
