"""Settings of a listener: what its opener decides, beside the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from logstore.errors import InvalidConfigurationError
from logstore.security.sasl import Credentials, checked_credentials
from logstore.wire.versions import SERVED, Versions

if TYPE_CHECKING:
    from ssl import SSLContext

    from logstore.security.authorizer import Authorizer
    from logstore.wire.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Who may come in, and what they are offered.

    Attributes
    ----------
    sasl : mapping of str to str, or Credentials, optional
        Passwords by user name, one of which every client must have.
    tls : ssl.SSLContext or "generate", optional
        Of a server; or have a certificate made for this host, whose authority clients find in the
        file `Listener.ca_path` (needs the extra `tls`).
    authorizer : Authorizer, optional
        Decides what each client may do; without one everybody may do everything.
    auto_create : bool
        Whether Metadata requests create the topics that they ask for
        (`auto.create.topics.enable`).
    restamp : bool
        Whether the time that the broker's clock is ahead of the machine's is added to the records
        that come in.
    limits : Limits, optional
        By default those that the broker's settings name (`Limits.of`); the limits on connections
        then follow when these change.
    versions : mapping of str to Versions
        Those served, by API name; fewer meet clients as an older broker does.

    Raises
    ------
    InvalidConfigurationError
        Users or passwords are none.
    """

    sasl: Credentials | Mapping[str, str] | None = None
    tls: SSLContext | Literal["generate"] | None = None
    authorizer: Authorizer | None = None
    auto_create: bool = True
    restamp: bool = False
    limits: Limits | None = None
    versions: Mapping[str, Versions] = field(default_factory=lambda: SERVED)

    def __post_init__(self) -> None:
        if self.sasl is not None:
            object.__setattr__(self, "sasl", checked_credentials(self.sasl))

    @property
    def credentials(self) -> Credentials | None:
        """Users and passwords; listeners with the same settings share what clients change."""
        assert self.sasl is None or isinstance(self.sasl, Credentials)
        return self.sasl


def settings_of_several(settings: Mapping[str, Any]) -> ListenerSettings:
    """Return what all listeners of a cluster have in common.

    Raises
    ------
    InvalidConfigurationError
        A setting is none, or is for one listener alone.
    """
    unknown = sorted(settings.keys() - {field.name for field in fields(ListenerSettings)})
    if unknown:
        raise InvalidConfigurationError(f"listeners have no settings {', '.join(unknown)}")
    if settings.get("tls") == "generate":
        raise InvalidConfigurationError(
            "tls='generate' makes an authority for one listener: give several an ssl.SSLContext"
        )
    return ListenerSettings(**settings)
