"""TLS for tests: a certificate of an authority that was made for it, good for this machine's names.

By trustme, which is made for just this and rests on `cryptography`; the standard library can serve
TLS, but makes no certificates.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from logstore.errors import InvalidConfigurationError

_ANYWHERE = ("", "0.0.0.0", "::")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class GeneratedTls(NamedTuple):
    """A server's side of TLS, and what clients need for trusting it.

    Attributes
    ----------
    ca_pem : bytes
        The certificate of the authority, as PEM.
    """

    context: ssl.SSLContext
    ca_pem: bytes


def generate_tls(host: str) -> GeneratedTls:
    """Return a certificate for a host and for this machine's own names; takes some ms.

    Raises
    ------
    InvalidConfigurationError
        trustme is not installed.
    """
    try:
        import trustme
    except ImportError as error:
        raise InvalidConfigurationError(
            "tls='generate' needs trustme: pip install 'kafka-logstore[tls]'"
        ) from error
    names = dict.fromkeys((*LOCAL_NAMES, host))
    authority = trustme.CA()
    certificate = authority.issue_cert(*(name for name in names if name not in _ANYWHERE))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return GeneratedTls(context, authority.cert_pem.bytes())
