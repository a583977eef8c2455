"""Who may do what: access control lists and their authorizer, and how clients show who they are."""

from logstore.security.acls import Acl, AclFilter
from logstore.security.authorizer import Authorizer

__all__ = ["Acl", "AclFilter", "Authorizer"]
