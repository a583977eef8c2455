"""PLAIN and SCRAM: the examples of their RFCs, a client of our own, and refusals."""

import hashlib
import hmac
import random
from base64 import b64decode, b64encode

import pytest

from logstore.errors import (
    IllegalSaslStateError,
    InvalidConfigurationError,
    LogStoreError,
    RequestError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from logstore.security.sasl import (
    MAX_MESSAGE_BYTES,
    MECHANISMS,
    Credentials,
    SaslServer,
    checked_credentials,
)
from logstore.security.scram import HASHES, ClientFirst, ScramCredential, ScramExchange
from tests.support.world.messages import exactly

PASSWORDS = {"ann": "secret", "b=o,b": "pässword"}
SCRAM = tuple(HASHES)


@pytest.fixture
def credentials():
    return Credentials(PASSWORDS, rng=random.Random(1))


def server(credentials, mechanism):
    found = SaslServer(credentials)
    found.choose(mechanism)
    return found


# -- PLAIN -----------------------------------------------------------------------------------


@pytest.mark.parametrize("user", PASSWORDS)
@pytest.mark.parametrize("for_itself", (False, True))
def test_plain(credentials, user, for_itself):
    plain = server(credentials, "PLAIN")
    assert plain.answer(f"{user if for_itself else ''}\0{user}\0{PASSWORDS[user]}".encode()) == b""
    assert plain.principal == f"User:{user}"


@pytest.mark.parametrize(
    "message",
    (
        b"",
        b"ann\0secret",
        b"\0ann\0secret\0",
        b"\0ann\0Secret",
        b"\0ann\0secret2",
        b"\0ann\0",
        b"\0\0secret",
        b"\0\0",
        b"\0bob\0secret",
        b"\0bob\0",
        b"bob\0ann\0secret",
        b"\0ann\0\xff",
    ),
)
def test_plain_is_refused(credentials, message):
    plain = server(credentials, "PLAIN")
    with pytest.raises(SaslAuthenticationFailedError):
        plain.answer(message)
    assert plain.principal is None


def test_a_wrong_user_and_a_wrong_password_sound_alike(credentials):
    said = set()
    for message in (b"\0ann\0wrong", b"\0nobody\0secret"):
        with pytest.raises(SaslAuthenticationFailedError) as refusal:
            server(credentials, "PLAIN").answer(message)
        said.add(str(refusal.value))
    assert len(said) == 1


# -- SCRAM -----------------------------------------------------------------------------------


def test_the_example_of_rfc_7677():
    first = ClientFirst.of(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password("SCRAM-SHA-256", "pencil", salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = ScramExchange("SCRAM-SHA-256", first, credential, nonce)
    assert exchange.challenge == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        exchange.finish(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


class Client:
    """A client of SCRAM, written from the RFC."""

    def __init__(self, mechanism, user, password, header="n,,"):
        self.hash = HASHES[mechanism]
        self.password = password.encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.header = header
        self.bare = f"n={name},r=abc"

    def first(self):
        return (self.header + self.bare).encode()

    def final(self, challenge, **changed):
        told = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations = b64decode(told["s"]), int(told["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password, salt, iterations)
        binding = changed.get("binding", b64encode(self.header.encode()).decode())
        bare = f"c={binding},r={changed.get('nonce', told['r'])}"
        said = ",".join((self.bare, challenge.decode(), bare)).encode()
        key = hmac.digest(salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), said, self.hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.expected = hmac.digest(hmac.digest(salted, b"Server Key", self.hash), said, self.hash)
        return f"{bare},p={b64encode(changed.get('proof', proof)).decode()}".encode()


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", PASSWORDS)
def test_scram(credentials, mechanism, user):
    scram, client = server(credentials, mechanism), Client(mechanism, user, PASSWORDS[user])
    challenge = scram.answer(client.first())
    assert challenge.startswith(b"r=abc")
    assert scram.principal is None
    assert scram.answer(client.final(challenge)) == b"v=" + b64encode(client.expected)
    assert scram.principal == f"User:{user}"


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(
    ("user", "password"), (("ann", "wrong"), ("nobody", "secret"), ("ann", ""), ("Ann", "secret"))
)
def test_scram_is_refused_at_its_end_alone(credentials, mechanism, user, password):
    scram, client = server(credentials, mechanism), Client(mechanism, user, password)
    challenge = scram.answer(client.first())
    with pytest.raises(SaslAuthenticationFailedError, match="wrong user or password"):
        scram.answer(client.final(challenge))
    assert scram.principal is None


def test_an_unknown_user_keeps_its_salt_and_gets_a_new_nonce(credentials):
    def challenge(user):
        found = server(credentials, "SCRAM-SHA-256").answer(f"n,,n={user},r=abc".encode())
        return found.decode().split(",")

    for user in ("ann", "nobody"):
        (nonce, *rest), (other, *again) = challenge(user), challenge(user)
        assert nonce != other
        assert rest == again
        assert (len(nonce), len(b64decode(rest[0][2:])), rest[1]) == (37, 16, "i=4096")
    assert challenge("nobody")[1] != challenge("somebody")[1]


@pytest.mark.parametrize("mechanism", SCRAM)
def test_response_time_does_not_reveal_whether_a_user_exists(mechanism, monkeypatch):
    """Counted in hashes: neither message of a user's first exchange takes one more."""
    credentials = Credentials(PASSWORDS, rng=random.Random(1))
    work = []

    def counted(name, function):
        return lambda *args, **kwargs: (work.append(name), function(*args, **kwargs))[1]

    for module, name in ((hashlib, "pbkdf2_hmac"), (hashlib, "new"), (hmac, "digest")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    found = {}
    for user in ("ann", "nobody", "b=o,b", "nobody else", "ann", "nobody"):
        scram = server(credentials, mechanism)
        written = user.replace("=", "=3D").replace(",", "=2C")
        work.clear()
        challenge = scram.answer(f"n,,n={written},r=abc".encode()).decode()
        first = tuple(work)
        nonce = challenge.partition(",")[0].removeprefix("r=")
        proof = b64encode(bytes(hashlib.new(HASHES[mechanism]).digest_size)).decode()
        work.clear()
        with pytest.raises(SaslAuthenticationFailedError):
            scram.answer(f"c=biws,r={nonce},p={proof}".encode())
        found.setdefault(user in PASSWORDS, set()).add((first, tuple(work)))
    assert found[True] == found[False]
    assert len(found[True]) == 1
    assert "pbkdf2_hmac" not in str(found)


def test_salts_do_not_reveal_whether_a_user_exists(credentials):
    """Those of the two mechanisms differ, of a user and of a name that is none."""
    for user in ("ann", "nobody"):
        salts = {
            server(credentials, mechanism).answer(f"n,,n={user},r=abc".encode()).split(b",")[1]
            for mechanism in SCRAM
        }
        assert len(salts) == len(SCRAM)


def test_a_user_whose_credential_is_deleted_is_answered_as_one_that_there_is_not(credentials):
    credentials.delete_scram("SCRAM-SHA-256", "ann")
    scram, client = server(credentials, "SCRAM-SHA-256"), Client("SCRAM-SHA-256", "ann", "secret")
    final = client.final(scram.answer(client.first()))
    with pytest.raises(SaslAuthenticationFailedError, match="wrong user or password"):
        scram.answer(final)


@pytest.mark.parametrize(
    "changed",
    (
        {"binding": b64encode(b"y,,").decode()},
        {"binding": "biw"},
        {"binding": "b===s"},
        {"nonce": "abc"},
        {"nonce": "abcd"},
        {"proof": b""},
        {"proof": b"\0" * 32},
        {"proof": b"\0" * 31},
        {"proof": b"\0" * 64},
    ),
)
def test_a_final_message_that_does_not_fit_is_refused(credentials, changed):
    scram, client = server(credentials, "SCRAM-SHA-256"), Client("SCRAM-SHA-256", "ann", "secret")
    challenge = scram.answer(client.first())
    with pytest.raises(SaslAuthenticationFailedError):
        scram.answer(client.final(challenge, **changed))
    assert scram.principal is None


def test_a_proof_with_more_behind_it_is_refused(credentials):
    scram, client = server(credentials, "SCRAM-SHA-256"), Client("SCRAM-SHA-256", "ann", "secret")
    final = client.final(scram.answer(client.first()))
    bare, _, proof = final.rpartition(b"p=")
    with pytest.raises(SaslAuthenticationFailedError):
        scram.answer(bare + b"p=" + b64encode(b64decode(proof) + b"\0"))


@pytest.mark.parametrize("message", (b"", b"c=biws,r=abc", b"\xff", b"c=biws,r=abc,p=", b"v=x"))
def test_a_final_message_that_is_none_is_refused(credentials, message):
    scram = server(credentials, "SCRAM-SHA-256")
    scram.answer(b"n,,n=ann,r=abc")
    with pytest.raises(SaslAuthenticationFailedError):
        scram.answer(message)


@pytest.mark.parametrize(
    "message",
    (
        b"",
        b"n=ann,r=abc",
        b"n,,n=ann",
        b"n,,n=ann,r=",
        b"n,,n=,r=abc",
        b"n,,r=abc,n=ann",
        b"p=tls-unique,,n=ann,r=abc",
        b"y,,n=ann,r=abc",
        b"n,a=bob,n=ann,r=abc",
        b"n,,m=must,n=ann,r=abc",
        b"n,,n=a=2ann,r=abc",
        b"n,,n=ann,r=a\tc",
        b"n,,n=\xff,r=abc",
    ),
)
def test_a_first_message_that_is_none_is_refused(credentials, message):
    with pytest.raises(SaslAuthenticationFailedError):
        server(credentials, "SCRAM-SHA-256").answer(message)


def test_acting_for_itself_and_extensions_are_fine(credentials):
    client = Client("SCRAM-SHA-512", "ann", "secret", header="n,a=ann,")
    client.bare += ",tokenauth=false"
    scram = server(credentials, "SCRAM-SHA-512")
    scram.answer(client.final(scram.answer(client.first())))
    assert scram.principal == "User:ann"


# -- states ----------------------------------------------------------------------------------


def test_a_message_before_the_choice_of_a_mechanism(credentials):
    with pytest.raises(IllegalSaslStateError):
        SaslServer(credentials).answer(b"\0ann\0secret")


def test_a_message_after_the_end(credentials):
    plain = server(credentials, "PLAIN")
    plain.answer(b"\0ann\0secret")
    with pytest.raises(IllegalSaslStateError):
        plain.answer(b"\0ann\0secret")


def test_a_second_choice(credentials):
    with pytest.raises(IllegalSaslStateError):
        server(credentials, "PLAIN").choose("PLAIN")


def test_a_mechanism_that_is_not_offered():
    few = Credentials(PASSWORDS, ["scram-sha-512"])
    assert few.mechanisms == ("SCRAM-SHA-512",)
    for each in ("PLAIN", "GSSAPI", "scram-sha-512", ""):
        with pytest.raises(UnsupportedSaslMechanismError, match="of SCRAM-SHA-512"):
            SaslServer(few).choose(each)


def test_a_message_that_is_too_long(credentials):
    with pytest.raises(SaslAuthenticationFailedError, match="524289 bytes"):
        server(credentials, "PLAIN").answer(b"\0" * (MAX_MESSAGE_BYTES + 1))


def test_a_message_may_be_as_long_as_the_limit(credentials):
    message = b"\0ann\0secret"
    exact, short = (SaslServer(credentials, len(message) - less) for less in (0, 1))
    exact.choose("PLAIN")
    exact.answer(message)
    assert exact.principal == "User:ann"
    short.choose("PLAIN")
    with pytest.raises(SaslAuthenticationFailedError, match=f"{len(message)} bytes"):
        short.answer(message)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_random_bytes_are_refused_in_good_order(credentials, mechanism):
    rng = random.Random(mechanism)
    pieces = (b"n,,", b"n=ann", b",r=abc", b"c=biws", b"p=", b"\0", b"=", b",", b"ann", b"\xff")
    for _ in range(500):
        sasl = server(credentials, mechanism)
        try:
            for _ in range(2):
                sasl.answer(b"".join(rng.choices(pieces, k=rng.randrange(6))))
        except LogStoreError:
            pass
        assert sasl.principal is None


# -- users -----------------------------------------------------------------------------------


def test_scram_users_can_be_set_and_deleted(credentials):
    mechanism, salt = "SCRAM-SHA-256", b"salt"
    salted = hashlib.pbkdf2_hmac("sha256", b"new", salt, 5000)
    credential = ScramCredential.of_salted_password(mechanism, salted, salt, 5000)
    credentials.set_scram(mechanism, "eve", credential)
    credentials.set_scram(mechanism, "ann", credential)
    for user in ("eve", "ann"):
        scram, client = server(credentials, mechanism), Client(mechanism, user, "new")
        scram.answer(client.final(scram.answer(client.first())))
        assert scram.principal == f"User:{user}"
    assert credentials.scram_users() == ["ann", "b=o,b", "eve"]
    assert credentials.delete_scram(mechanism, "eve")
    assert not credentials.delete_scram(mechanism, "eve")
    assert not credentials.delete_scram(mechanism, "nobody")
    assert credentials.delete_scram(mechanism, "ann")
    assert credentials.scram(mechanism, "ann") is None
    assert credentials.scram("SCRAM-SHA-512", "ann") is not None
    assert credentials.scram_users() == ["ann", "b=o,b"]


@pytest.mark.parametrize(
    ("iterations", "message"),
    (
        (4095, "4095 iterations are not in [4096, 16384]"),
        (16385, "16385 iterations are not in [4096, 16384]"),
        (0, "0 iterations are not in [4096, 16384]"),
        (-1, "-1 iterations are not in [4096, 16384]"),
    ),
)
def test_too_few_or_too_many_iterations(iterations, message):
    with pytest.raises(RequestError, match=exactly(message)):
        ScramCredential.of_salted_password("SCRAM-SHA-256", b"salted", b"salt", iterations)


@pytest.mark.parametrize(
    ("passwords", "mechanisms", "says"),
    (
        ({"": "x"}, MECHANISMS, "needs a name"),
        ({"ann": ""}, MECHANISMS, "needs a name and a password"),
        ({"ann": 7}, MECHANISMS, "needs a name and a password"),
        (PASSWORDS, (), "unknown SASL mechanism"),
        (PASSWORDS, ("GSSAPI",), "GSSAPI"),
    ),
)
def test_credentials_that_are_refused(passwords, mechanisms, says):
    with pytest.raises(InvalidConfigurationError, match=says):
        Credentials(passwords, mechanisms)


def test_credentials_from_a_mapping(credentials):
    assert checked_credentials(credentials) is credentials
    assert checked_credentials(PASSWORDS).mechanisms == MECHANISMS
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("sasl must be a mapping of users to passwords, not 'ann:secret'"),
    ):
        checked_credentials("ann:secret")


# -- messages of refusals -----------------------------------------------------------------------


def _scram_final(credentials, message):
    scram = server(credentials, "SCRAM-SHA-256")
    challenge = scram.answer(b"n,,n=ann,r=abc").decode()
    nonce = challenge.split(",")[0]
    scram.answer(message.replace(b"NONCE", nonce.encode()))


@pytest.mark.parametrize(
    ("mechanism", "message", "says"),
    (
        ("PLAIN", b"ann\0secret", "malformed PLAIN token: expected three UTF-8 parts"),
        ("PLAIN", b"\0\xff\0secret", "malformed PLAIN token: expected three UTF-8 parts"),
        ("PLAIN", b"\0ann\0wrong", "wrong user or password"),
        ("PLAIN", b"bob\0ann\0wrong", "wrong user or password"),
        ("PLAIN", b"bob\0ann\0secret", "authorization ids are not supported"),
        ("SCRAM-SHA-256", b"hello", "malformed SCRAM client-first message"),
        ("SCRAM-SHA-256", b"n,,n=\xff,r=abc", "SCRAM message is not UTF-8"),
        ("SCRAM-SHA-256", b"n,,n=a=2Db,r=abc", "SCRAM message has an invalid name"),
        ("SCRAM-SHA-256", b"n,a=bob,n=ann,r=abc", "authorization ids are not supported"),
    ),
)
def test_a_first_message_that_is_refused(credentials, mechanism, message, says):
    it = server(credentials, mechanism)
    with pytest.raises(SaslAuthenticationFailedError) as raised:
        it.answer(message)
    assert (str(raised.value), it.principal) == (says, None)


@pytest.mark.parametrize(
    ("message", "says"),
    (
        (b"hello", "malformed SCRAM client-final message"),
        (b"c=biws,r=abc,p=AAAA", "SCRAM nonce or channel binding does not match"),
        (b"c=bixz,NONCE,p=AAAA", "SCRAM nonce or channel binding does not match"),
        (b"c=biws,NONCE,p=AAA", "SCRAM message has invalid base64"),
        (b"c=biws,NONCE,p=AAAA", "wrong user or password"),
        (b"c=biws,NONCE,p=\xff", "SCRAM message is not UTF-8"),
    ),
)
def test_a_final_message_that_is_refused(credentials, message, says):
    with pytest.raises(SaslAuthenticationFailedError) as raised:
        _scram_final(credentials, message)
    assert str(raised.value) == says


def test_steps_out_of_order_and_settings_that_are_refused(credentials):
    for call, error, says in (
        (
            lambda: SaslServer(credentials).answer(b""),
            IllegalSaslStateError,
            "unexpected SASL token",
        ),
        (
            lambda: server(credentials, "PLAIN").choose("PLAIN"),
            IllegalSaslStateError,
            "a SASL mechanism has already been chosen",
        ),
        (
            lambda: SaslServer(credentials).choose("GSSAPI"),
            UnsupportedSaslMechanismError,
            "GSSAPI is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            lambda: Credentials({}, ["plain", "x"]),
            InvalidConfigurationError,
            "unknown SASL mechanism in ['PLAIN', 'X'];"
            " supported: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            lambda: Credentials({"ann": "", "": "x"}),
            InvalidConfigurationError,
            "user 'ann' needs a name and a password",
        ),
        (
            lambda: Credentials({"": "x"}),
            InvalidConfigurationError,
            "user '' needs a name and a password",
        ),
        (
            lambda: checked_credentials(5),
            InvalidConfigurationError,
            "sasl must be a mapping of users to passwords, not 5",
        ),
    ):
        with pytest.raises(error) as raised:
            call()
        assert str(raised.value) == says


@pytest.mark.parametrize("mechanism", ("PLAIN", *SCRAM))
def test_a_token_of_the_limit_is_read_and_a_larger_one_refused(credentials, mechanism):
    for size in (300, 301):
        it = SaslServer(credentials, 300)
        it.choose(mechanism)
        with pytest.raises(SaslAuthenticationFailedError) as raised:
            it.answer(bytes(size))
        assert ("too large" in str(raised.value)) is (size == 301)
    assert str(raised.value) == "SASL token of 301 bytes is too large"
