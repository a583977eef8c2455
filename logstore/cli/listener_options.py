"""Listener options: authentication, encryption and authorization of clients."""

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
"""As in `logstore.security.sasl`, which `--help` should not import."""

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False)


class ListenerOptions(NamedTuple):
    """Values of the listener options.

    Attributes
    ----------
    users_file : str or None
        File with NAME=PASSWORD lines. If None, an environment variable is used.
    mechanisms : tuple of str
        SASL mechanisms. Empty for all.
    tls_cert, tls_key, tls_generate : str or None
        Certificate and key files, or the file to which the generated CA certificate is written.
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
        """Return the credentials of the users, or None if authentication is off.

        Raises
        ------
        InvalidConfigurationError
        """
        if self.users_file is not None:
            where, text = self.users_file, _text_of(self.users_file)
        elif USERS_VARIABLE in os.environ:
            where, text = USERS_VARIABLE, os.environ[USERS_VARIABLE]
        elif self.mechanisms:
            raise click.UsageError(f"--sasl-mechanism requires --sasl-users or {USERS_VARIABLE}.")
        else:
            return None
        from logstore.security.sasl import Credentials

        return Credentials(_users_of(text, where), self.mechanisms or MECHANISMS)

    def tls(self, host: str) -> ssl.SSLContext | None:
        """Return the server's TLS context, or None for plaintext.

        Raises
        ------
        InvalidConfigurationError
        """
        if self.tls_generate is not None:
            if self.tls_cert or self.tls_key:
                raise click.UsageError("--tls-generate excludes --tls-cert and --tls-key.")
            return _generated(host, self.tls_generate)
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise click.UsageError("--tls-key requires --tls-cert.")
            return None
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            files = " and ".join(filter(None, (self.tls_cert, self.tls_key)))
            raise InvalidConfigurationError(f"cannot serve TLS with {files}: {error}") from error
        return context

    def authorizer(self) -> Authorizer | None:
        """Return the authorizer, or None to permit everything.

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
        raise InvalidConfigurationError(f"{path} is not UTF-8: {error}") from error


def _users_of(text: str, where: str) -> dict[str, str]:
    """Parse passwords by user. Error messages never contain passwords."""
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, password = line.partition("=")
        name = name.strip()
        if not (sign and name and password):
            raise InvalidConfigurationError(f"{where}: line {number} is not NAME=PASSWORD")
        if name in users:
            raise InvalidConfigurationError(f"{where}: line {number}: duplicate user '{name}'")
        users[name] = password
    if not users:
        raise InvalidConfigurationError(f"{where}: no users")
    return users


def _generated(host: str, ca_file: str) -> ssl.SSLContext:
    from logstore.security.tls import generate_tls

    generated = generate_tls(host)
    Path(ca_file).write_bytes(generated.ca_pem)
    note(f"clients must trust the certificate authority in {ca_file}")
    return generated.context


def to_acls(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[Acl, ...]:
    """Parse a repeated `[deny] PRINCIPAL OPERATION TYPE[:NAME] [prefixed]`."""
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


def listener_options(function: _F) -> _F:
    """Add the listener options to a command, named after the fields of `ListenerOptions`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--sasl-users",
        "users_file",
        type=_FILE,
        help="Require authentication as one of the users in this file, one NAME=PASSWORD per line. "
        f"[default: ${USERS_VARIABLE}; no authentication if unset]",
    ),
    click.option(
        "--sasl-mechanism",
        "mechanisms",
        type=click.Choice(MECHANISMS),
        multiple=True,
        help="SASL mechanism to offer. Can be repeated. [default: all]",
    ),
    click.option("--tls-cert", type=_FILE, help="Serve TLS with this certificate chain (PEM)."),
    click.option(
        "--tls-key", type=_FILE, help="Private key (PEM). [default: in the file of --tls-cert]"
    ),
    click.option(
        "--tls-generate",
        type=click.Path(dir_okay=False, writable=True),
        help="Serve TLS with a generated certificate, and write the CA certificate that clients"
        " must trust to this file (PEM).",
    ),
    click.option(
        "--acls",
        "acls_file",
        type=_FILE,
        help="Authorize clients by the ACLs in this JSON file (fields: acls, super_users).",
    ),
    click.option(
        "--acl",
        "acls",
        callback=to_acls,
        multiple=True,
        metavar="PRINCIPAL OPERATION TYPE:NAME",
        help="Add an ACL, such as 'User:ann write topic:orders- prefixed' or 'deny User:* all"
        " topic:secret'. Can be repeated.",
    ),
    click.option(
        "--super-user",
        "super_users",
        multiple=True,
        metavar="PRINCIPAL",
        help="Principal that may perform any operation, such as User:admin. Can be repeated.",
    ),
)
