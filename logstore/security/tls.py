"""TLS for tests: a new certificate authority and a certificate for local host names.

This requires trustme, because the standard library cannot create certificates.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from logstore.errors import InvalidConfigurationError

_ANYWHERE = ("", "0.0.0.0", "::")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class GeneratedTls(NamedTuple):
    """A TLS server context and its CA certificate.

    Attributes
    ----------
    ca_pem : bytes
        The CA certificate in PEM format.
    """

    context: ssl.SSLContext
    ca_pem: bytes


def generate_tls(host: str) -> GeneratedTls:
    """Create a certificate for a host and the local host names, which takes milliseconds.

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
