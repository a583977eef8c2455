"""Options of a door for clients: who they are, how they are encrypted, what they may do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from logstore.cli.show.output import note
from logstore.errors import InvalidConfigurationError, RequestError

if TYPE_CHECKING:
    import ssl

    from logstore.security.acls import Acl
    from logstore.security.authorizer import Authorizer
    from logstore.security.sasl import Credentials

USERS_VARIABLE = "LOGSTORE_SASL_USERS"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those of `logstore.security.sasl`, which the help is not to load."""

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False)


class Door(NamedTuple):
    """What these options said.

    Attributes
    ----------
    users_file : str or None
        Lines of NAME=PASSWORD; where there is none, those of the environment count.
    mechanisms : tuple of str
        Of SASL; empty means all.
    tls_cert, tls_key, tls_generate : str or None
        Files: those to serve with, or the one for the authority of a certificate to be made.
    acls_file : str or None
    acls : tuple of Acl
    super_users : tuple of str
    """

    users_file: str | None
    mechanisms: tuple[str, ...]
    tls_cert: str | None
    tls_key: str | None
    tls_generate: str | None
    acls_file: str | None
    acls: tuple[Acl, ...]
    super_users: tuple[str, ...]

    def sasl(self) -> Credentials | None:
        """Return the users who may come in; None if nobody has to say who he is.

        Raises
        ------
        InvalidConfigurationError
        """
        if self.users_file is not None:
            where, text = self.users_file, _text_of(self.users_file)
        elif USERS_VARIABLE in os.environ:
            where, text = USERS_VARIABLE, os.environ[USERS_VARIABLE]
        elif self.mechanisms:
            raise click.UsageError(f"--sasl-mechanism wants --sasl-users, or {USERS_VARIABLE}.")
        else:
            return None
        from logstore.security.sasl import Credentials

        return Credentials(_users_of(text, where), self.mechanisms or MECHANISMS)

    def tls(self, host: str) -> ssl.SSLContext | None:
        """Return the server's side of TLS; None for plain text.

        Raises
        ------
        InvalidConfigurationError
        """
        if self.tls_generate is not None:
            if self.tls_cert or self.tls_key:
                raise click.UsageError("--tls-generate wants no other certificate or key.")
            return _generated(host, self.tls_generate)
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise click.UsageError("--tls-key wants --tls-cert.")
            return None
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:  # of which an ssl.SSLError is one
            files = " and ".join(filter(None, (self.tls_cert, self.tls_key)))
            raise InvalidConfigurationError(f"cannot serve TLS with {files}: {error}") from error
        return context

    def authorizer(self) -> Authorizer | None:
        """Return the judge of what clients may do; None lets everybody do everything.

        Raises
        ------
        InvalidConfigurationError
        """
        if not (self.acls_file or self.acls or self.super_users):
            return None
        from logstore.security.authorizer import Authorizer

        text = "{}" if self.acls_file is None else _text_of(self.acls_file)
        try:
            stored = Authorizer.from_json(text)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{self.acls_file}: {error}") from error
        return Authorizer(
            [*stored.acls(), *self.acls],
            super_users=[*stored.super_users, *self.super_users],
            allow_everyone_if_no_acl_found=stored.allow_everyone_if_no_acl_found,
        )


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except ValueError as error:
        raise InvalidConfigurationError(f"{path} is no UTF-8: {error}") from error


def _users_of(text: str, where: str) -> dict[str, str]:
    """Return passwords by user; what is wrong is told without any of them."""
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, password = line.partition("=")
        name = name.strip()
        if not (sign and name and password):
            raise InvalidConfigurationError(f"{where}: line {number} is not NAME=PASSWORD")
        if name in users:
            raise InvalidConfigurationError(f"{where}: line {number} names '{name}' again")
        users[name] = password
    if not users:
        raise InvalidConfigurationError(f"{where}: there is no user")
    return users


def _generated(host: str, ca_file: str) -> ssl.SSLContext:
    from logstore.security.tls import generate_tls

    made = generate_tls(host)
    Path(ca_file).write_bytes(made.ca_pem)
    note(f"clients trust the certificate by the authority in {ca_file}")
    return made.context


def to_acls(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[Acl, ...]:
    """Return the ACLs of a repeated `[deny] PRINCIPAL OPERATION TYPE[:NAME] [prefixed]`."""
    if not values:
        return ()
    from logstore.security.acls import CLUSTER_NAME, Acl

    acls = []
    for value in values:
        words = value.split()
        permission = words.pop(0) if words[:1] and words[0] in ("allow", "deny") else "allow"
        pattern = words.pop() if words and words[-1] in ("literal", "prefixed") else "literal"
        if len(words) != 3:
            form = "[deny] PRINCIPAL OPERATION TYPE:NAME [prefixed]"
            raise click.BadParameter(f"{value!r} is not {form}", ctx, param)
        principal, operation, resource = words
        resource_type, colon, name = resource.partition(":")
        try:
            acls.append(
                Acl(
                    principal,
                    operation,
                    resource_type,
                    name if colon else CLUSTER_NAME if resource_type == "cluster" else "",
                    pattern,
                    permission,
                )
            )
        except RequestError as error:
            raise click.BadParameter(f"{value!r}: {error}", ctx, param) from error
    return tuple(acls)


def door_options(function: _F) -> _F:
    """Add the options to a command, which gets each under the name of `Door`'s field."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--sasl-users",
        "users_file",
        type=_FILE,
        help="Clients must be one of these users: lines of NAME=PASSWORD. Without it, the lines"
        f" in the environment's {USERS_VARIABLE}.",
    ),
    click.option(
        "--sasl-mechanism",
        "mechanisms",
        type=click.Choice(MECHANISMS),
        multiple=True,
        help="How they show it; repeatable, all by default.",
    ),
    click.option("--tls-cert", type=_FILE, help="Serve TLS with this chain of certificates (PEM)."),
    click.option("--tls-key", type=_FILE, help="Its key, unless it is in the same file."),
    click.option(
        "--tls-generate",
        type=click.Path(dir_okay=False, writable=True),
        help="Serve TLS with a certificate made for the host; the authority that clients are to"
        " trust goes to this file.",
    ),
    click.option(
        "--acls",
        "acls_file",
        type=_FILE,
        help="Clients may do what these ACLs allow, as JSON: acls, super_users.",
    ),
    click.option(
        "--acl",
        "acls",
        callback=to_acls,
        multiple=True,
        metavar="PRINCIPAL OPERATION TYPE:NAME",
        help="One more: User:ann write topic:orders- prefixed, or deny User:* all topic:secret;"
        " repeatable.",
    ),
    click.option(
        "--super-user",
        "super_users",
        multiple=True,
        metavar="PRINCIPAL",
        help="Who may do everything, as User:admin; repeatable.",
    ),
)
