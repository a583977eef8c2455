"""Security: ACLs and their authorizer, SASL authentication, TLS certificates for tests."""

from logstore.security.acls import Acl, AclFilter
from logstore.security.authorizer import Authorizer

__all__ = ["Acl", "AclFilter", "Authorizer"]
