"""Settings of a listener other than its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from logstore.errors import InvalidConfigurationError
from logstore.security.sasl import Credentials, checked_credentials
from logstore.wire.client_quotas import ClientQuotas
from logstore.wire.versions import Versions

if TYPE_CHECKING:
    from ssl import SSLContext

    from logstore.security.authorizer import Authorizer
    from logstore.wire.limits import Limits


class ListenerOptions(TypedDict, total=False):
    """Keyword settings of a cluster's listeners, as in `ListenerSettings`."""

    sasl: Credentials | Mapping[str, str] | None
    tls: SSLContext | Literal["generate"] | None
    authorizer: Authorizer | None
    auto_create: bool
    restamp: bool
    limits: Limits | None
    versions: Mapping[str, Versions] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Settings of a listener.

    Attributes
    ----------
    sasl : mapping of str to str, or Credentials, optional
        Passwords by user name; makes SASL authentication mandatory.
    tls : ssl.SSLContext or "generate", optional
        A server context, or "generate" for a new certificate for this host. The CA certificate for
        clients is then in the file `Listener.ca_path` (needs the extra `tls`).
    authorizer : Authorizer, optional
        Checks the permissions of clients. Without one, every client may do everything.
    auto_create : bool
        Whether Metadata requests create missing topics (`auto.create.topics.enable`).
    restamp : bool
        Whether to shift the timestamps of produced records by the difference between the broker's
        clock and the system clock.
    limits : Limits, optional
        By default taken from the broker's settings (`Limits.of`). The connection limits then
        follow changes of the settings.
    versions : mapping of str to Versions, optional
        Served versions by API name (default: all); fewer versions imitate an older broker.
    quotas : ClientQuotas
        The quotas that clients set; listeners with the same settings share them.
    own_credentials : Credentials
        Users that clients create without `sasl`; listeners with the same settings share them.

    Raises
    ------
    InvalidConfigurationError
        A user name or password is invalid.
    """

    sasl: Credentials | Mapping[str, str] | None = None
    tls: SSLContext | Literal["generate"] | None = None
    authorizer: Authorizer | None = None
    auto_create: bool = True
    restamp: bool = False
    limits: Limits | None = None
    versions: Mapping[str, Versions] | None = None
    quotas: ClientQuotas = field(default_factory=ClientQuotas, init=False)
    own_credentials: Credentials = field(default_factory=lambda: Credentials({}), init=False)

    def __post_init__(self) -> None:
        if self.sasl is not None:
            object.__setattr__(self, "sasl", checked_credentials(self.sasl))

    @property
    def credentials(self) -> Credentials | None:
        """Users and passwords; listeners with the same settings share changes by clients."""
        assert self.sasl is None or isinstance(self.sasl, Credentials)
        return self.sasl


def settings_of_several(settings: Mapping[str, Any]) -> ListenerSettings:
    """Return the common settings of a cluster's listeners.

    Raises
    ------
    InvalidConfigurationError
        A setting is unknown, or only works for a single listener.
    """
    known = {each.name for each in fields(ListenerSettings) if each.init}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise InvalidConfigurationError(f"unknown listener settings: {', '.join(unknown)}")
    if settings.get("tls") == "generate":
        raise InvalidConfigurationError(
            "tls='generate' works for one listener only: for several, pass an ssl.SSLContext"
        )
    return ListenerSettings(**settings)
