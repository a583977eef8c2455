"""Security APIs: SASL authentication, SCRAM credentials and ACLs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.errors import (
    KAFKA_CODES,
    LogStoreError,
    RequestError,
    UnsupportedSaslMechanismError,
)
from logstore.messages import Message
from logstore.messages.types import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from logstore.security.acls import Acl, AclFilter
from logstore.security.sasl import SaslServer
from logstore.security.scram import ScramCredential
from logstore.wire.registry import HandlerThread, handles

if TYPE_CHECKING:
    from logstore.wire.session import Session

CLUSTER_NOT_ALLOWED = "CLUSTER_AUTHORIZATION_FAILED"
NO_AUTHORIZER = "SECURITY_DISABLED"

# -- SASL ------------------------------------------------------------------------------------------


@handles("SaslHandshake", HandlerThread.LOOP, before_authentication=True)
def sasl_handshake(request: SaslHandshakeRequest, session: Session) -> SaslHandshakeResponse:
    """Let the client choose a SASL mechanism."""
    if session.is_authenticated:
        return SaslHandshakeResponse(error_code=KAFKA_CODES["ILLEGAL_SASL_STATE"])
    credentials = session.service.credentials
    if session.sasl is None:
        session.sasl = _server(session)
    code = 0
    try:
        session.sasl.choose(request.mechanism)
        # Since version 1, SaslAuthenticate requests contain the SASL tokens. With version 0, the
        # tokens are raw frames without a header.
        session.takes_tokens = session.version == 0
    except UnsupportedSaslMechanismError as error:
        code = error.code
        session.ends = True
    except LogStoreError as error:
        session.ends = True
        return SaslHandshakeResponse(error_code=error.code)
    return SaslHandshakeResponse(error_code=code, mechanisms=list(credentials.mechanisms))


@handles("SaslAuthenticate", HandlerThread.LOOP, before_authentication=True)
def sasl_authenticate(
    request: SaslAuthenticateRequest, session: Session
) -> SaslAuthenticateResponse:
    """Handle a client's next SASL token. A failure closes the connection."""
    if session.is_authenticated:
        return SaslAuthenticateResponse(
            error_code=KAFKA_CODES["ILLEGAL_SASL_STATE"],
            error_message="SaslAuthenticate request after authentication",
        )
    try:
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer_token(bytes(request.auth_bytes), session)
        )
    except LogStoreError as error:
        session.ends = session.has_failed = True
        return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))


def answer_token(token: bytes, session: Session) -> bytes:
    """Return the response to a SASL token. The last token authenticates the session.

    Raises
    ------
    SaslAuthenticationFailedError, IllegalSaslStateError
    """
    if session.sasl is None:
        session.sasl = _server(session)
    answer = session.sasl.answer(token)
    if session.sasl.principal is not None:
        session.principal = session.sasl.principal
        session.is_authenticated = True
        session.takes_tokens = False
    return answer


def _server(session: Session) -> SaslServer:
    service = session.service
    return SaslServer(service.credentials, service.limits.frame_bytes_before_authentication)


# -- SCRAM credentials -----------------------------------------------------------------------------

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
ScramResult = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@handles("DescribeUserScramCredentials")
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, session: Session
) -> DescribeUserScramCredentialsResponse:
    """Return users' SCRAM mechanisms and iteration counts."""
    if not session.allows("describe", "cluster"):
        return DescribeUserScramCredentialsResponse(
            error_code=KAFKA_CODES[CLUSTER_NOT_ALLOWED], error_message=None
        )
    credentials = session.service.credentials
    counts = Counter(each.name for each in request.users or ())
    results = []
    for user in counts or credentials.scram_users():
        infos = [
            DescribeUserScramCredentialsResponse.CredentialInfo(
                mechanism=number, iterations=found.iterations
            )
            for number, mechanism in _MECHANISMS.items()
            if (found := credentials.scram(mechanism, user)) is not None
        ]
        result = ScramResult(user=user, error_message=None)
        if counts[user] > 1:
            _refuse(result, "DUPLICATE_RESOURCE", f"user {user} is listed more than once")
        elif infos:
            result.credential_infos = infos
        else:
            _refuse(result, "RESOURCE_NOT_FOUND", f"user {user} has no SCRAM credentials")
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


@handles("AlterUserScramCredentials")
def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, session: Session
) -> AlterUserScramCredentialsResponse:
    """Set and delete SCRAM credentials. The changes of each user are all made, or all refused."""
    given: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    users = list(dict.fromkeys(each.name for each in given))
    errors: dict[str, tuple[str, str]] = {}
    if not session.allows("alter", "cluster"):
        errors = dict.fromkeys(users, (CLUSTER_NOT_ALLOWED, ""))
    else:
        for (user, _), count in Counter((each.name, each.mechanism) for each in given).items():
            if count > 1:
                errors[user] = "DUPLICATE_RESOURCE", "a user credential cannot be altered twice"
        for each in given:
            refusal = _scram_refusal(each, session)
            if refusal is not None:
                errors.setdefault(each.name, refusal)
        _alter_scram(request, session, errors)
    results = []
    for user in users:
        result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
            user=user, error_message=None
        )
        if user in errors:
            _refuse(result, *errors[user])
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _scram_refusal(given: _Deletion | _Upsertion, session: Session) -> tuple[str, str] | None:
    mechanism = _MECHANISMS.get(given.mechanism)
    if not given.name:
        return "UNACCEPTABLE_CREDENTIAL", "the user's name is empty"
    if mechanism is None:
        return "UNSUPPORTED_SASL_MECHANISM", f"unknown SCRAM mechanism {given.mechanism}"
    if isinstance(given, _Upsertion):
        try:
            _credential(given, mechanism)
        except RequestError as error:
            return "UNACCEPTABLE_CREDENTIAL", str(error)
    elif session.service.credentials.scram(mechanism, given.name) is None:
        return "RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"
    return None


def _credential(given: _Upsertion, mechanism: str) -> ScramCredential:
    salted, salt = bytes(given.salted_password), bytes(given.salt)
    return ScramCredential.of_salted_password(mechanism, salted, salt, given.iterations)


def _alter_scram(
    request: AlterUserScramCredentialsRequest,
    session: Session,
    errors: dict[str, tuple[str, str]],
) -> None:
    credentials = session.service.credentials
    for deletion in request.deletions:
        if deletion.name not in errors:
            credentials.delete_scram(_MECHANISMS[deletion.mechanism], deletion.name)
    for upsertion in request.upsertions:
        if upsertion.name not in errors:
            mechanism = _MECHANISMS[upsertion.mechanism]
            credentials.set_scram(mechanism, upsertion.name, _credential(upsertion, mechanism))


# -- ACLs ------------------------------------------------------------------------------------------


@handles("DescribeAcls")
def describe_acls(request: DescribeAclsRequest, session: Session) -> DescribeAclsResponse:
    """Return the ACLs that match a filter, grouped by resource."""
    authorizer = session.service.authorizer
    response = DescribeAclsResponse(error_message=None)
    if not session.allows("describe", "cluster"):
        return _refuse(response, CLUSTER_NOT_ALLOWED, "DESCRIBE on the cluster is required")
    if authorizer is None:
        return _refuse(response, NO_AUTHORIZER, "No Authorizer is configured on the broker")
    try:
        found = authorizer.acls(_filter(request))
    except RequestError as error:
        return _refuse(response, error.kafka_error, str(error))
    resources: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in found:
        about = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.setdefault(
            about,
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=about[0], resource_name=about[1], pattern_type=about[2]
            ),
        )
        resource.acls.append(
            DescribeAclsResponse.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    response.resources = list(resources.values())
    return response


@handles("CreateAcls")
def create_acls(request: CreateAclsRequest, session: Session) -> CreateAclsResponse:
    """Create ACLs. An invalid ACL does not prevent the others from being created."""
    refusal = _change_refusal(session)
    authorizer = session.service.authorizer
    results, good = [], []
    for each in request.creations:
        result = CreateAclsResponse.AclCreationResult(error_message=None)
        results.append(result)
        if refusal is not None:
            _refuse(result, *refusal)
            continue
        try:
            good.append(
                Acl(
                    each.principal,
                    each.operation,
                    each.resource_type,
                    each.resource_name,
                    each.resource_pattern_type,
                    each.permission_type,
                    each.host,
                )
            )
        except RequestError as error:
            _refuse(result, error.kafka_error, str(error))
    if authorizer is not None and good:
        authorizer.add(*good)
    return CreateAclsResponse(results=results)


@handles("DeleteAcls")
def delete_acls(request: DeleteAclsRequest, session: Session) -> DeleteAclsResponse:
    """Delete the ACLs that match the given filters. Return the deleted ACLs."""
    refusal = _change_refusal(session)
    authorizer = session.service.authorizer
    results = []
    for each in request.filters:
        result = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
        results.append(result)
        if authorizer is None or refusal is not None:
            _refuse(result, *(refusal or (NO_AUTHORIZER, "")))
            continue
        try:
            gone = authorizer.remove(_filter(each))
        except RequestError as error:
            _refuse(result, error.kafka_error, str(error))
            continue
        result.matching_acls = [
            DeleteAclsResponse.DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in gone
        ]
    return DeleteAclsResponse(filter_results=results)


def _change_refusal(session: Session) -> tuple[str, str] | None:
    if not session.allows("alter", "cluster"):
        return CLUSTER_NOT_ALLOWED, "ALTER on the cluster is required"
    if session.service.authorizer is None:
        return NO_AUTHORIZER, "No Authorizer is configured on the broker"
    return None


def _filter(given: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        given.resource_type_filter,
        given.resource_name_filter,
        given.pattern_type_filter,
        given.principal_filter,
        given.host_filter,
        given.operation,
        given.permission_type,
    )


Refused = TypeVar("Refused", bound=Message)


def _refuse(result: Refused, error: str, message: str) -> Refused:
    """Set the error code and message of a result or response. Return the same object."""
    refused: Any = result
    refused.error_code, refused.error_message = KAFKA_CODES[error], message
    return result
