import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import (
    BUNDLE,
    JETTY_401,
    REPORT,
    UNLOAD,
    Broker,
    brokers,
    closed_port,
    connect,
)
from tests.token_issuer import AUDIENCE, CLIENT, DISCOVERY, SECRET, TOKEN, TokenIssuer, token_issuer

from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection, OAuth2, PulsarAdmin, tokens

pytestmark = pytest.mark.anyio

LIST = "/admin/v2/brokers"


@pytest.fixture
def issuing(tmp_path: Path) -> Iterator[TokenIssuer]:
    with token_issuer(tmp_path) as found:
        found.credentials_file()
        yield found


@pytest.fixture
def broker() -> Iterator[Broker]:
    with brokers(1) as (found,):
        yield found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now=1000.0)
    found.monotonic = lambda: found.now
    monkeypatch.setattr(tokens, "time", found)
    return found


def admitted(issuing: TokenIssuer, broker: Broker, **changes: Any) -> PulsarAdmin:
    ca_file = changes.pop("ca_file", issuing.ca_file)
    changes.setdefault("credentials_file", issuing.folder / "credentials.json")
    return connect(broker, token=None, ca_file=ca_file, oauth2=OAuth2(**{"audience": AUDIENCE} | changes))


def accept(broker: Broker, method: str, path: str, *valid: str, body: Any = "[]") -> None:
    """Answer only requests with one of these tokens, the others as brokers do."""

    async def judge(request: Request) -> Response:
        ok = request.headers.get("authorization") in {f"Bearer {token}" for token in valid}
        return Response(body) if ok else Response(JETTY_401, 401)

    broker.on(method, path, judge)


async def refusal(admin: PulsarAdmin) -> AdminError:
    with pytest.raises(AdminError) as caught:
        await admin.brokers()
    return caught.value


# an issuer


async def test_concurrent_requests_fetch_one_token_as_pulsars_clients_do(issuing, broker):
    broker.on("GET", REPORT, {})
    async with admitted(issuing, broker, scope="admin") as admin:
        reports = await asyncio.gather(*(admin.load_report(broker.id) for _ in range(50)))
    assert reports == [{}] * 50
    assert issuing.server.paths == [f"GET {DISCOVERY}", f"POST {TOKEN}"]
    assert parse_qs(issuing.server.seen[-1].body.decode()) == {
        "grant_type": ["client_credentials"],
        "client_id": [CLIENT],
        "client_secret": [SECRET],
        "audience": [AUDIENCE],
        "scope": ["admin"],
    }
    assert {seen.token for seen in broker.seen} == {f"Bearer {issuing.issued[0]}"}
    assert {seen.method_name for seen in broker.seen} == {"token"}


async def test_a_token_is_renewed_before_it_expires_and_kept_while_the_issuer_is_down(issuing, broker, clock):
    issuing.lifetime = 100
    async with admitted(issuing, broker) as admin:

        async def at(seconds):
            clock.now = 1000.0 + seconds
            await admin.brokers()
            assert broker.seen[-1].token == f"Bearer {issuing.issued[-1]}"
            return issuing.asked

        assert [await at(0), await at(79), await at(80)] == [1, 1, 2]
        issuing.unavailable()
        assert [await at(159), await at(160), await at(160.5), await at(161), await at(179)] == [2, 3, 3, 4, 5]
        clock.now = 1180.0
        error = await refusal(admin)
        # A failure counts for all requests of the next second.
        assert (error.reason, (await refusal(admin)).reason) == ("issuer_unavailable", "issuer_unavailable")
        assert issuing.asked == 6
        assert "503" in error.message
        assert error.reason.action in error.message
        issuing.available()
        assert await at(181.5) == 7


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ca.pem", None),
        ("ca.pem", "-----BEGIN CERTIFICATE-----\nMIIB"),
        ("own.json", '{"issuer_url": "https://i:99999"}'),
    ],
)
async def test_a_token_is_kept_while_files_are_being_replaced(issuing, broker, clock, name, content):
    ca_file = issuing.folder / "ca.pem"
    ca_file.write_bytes(issuing.ca_file.read_bytes())
    own, damaged = issuing.credentials_file("own.json"), issuing.folder / name
    issuing.lifetime = 100
    async with admitted(issuing, broker, ca_file=ca_file, credentials_file=own) as admin:
        await admin.brokers()
        if content is None:
            damaged.unlink()
        elif name == "ca.pem":
            damaged.write_text(content)
        else:
            issuing.credentials_file(name, **json.loads(content))
        clock.now += 90
        await admin.brokers()
        assert broker.seen[-1].token == f"Bearer {issuing.issued[0]}"
        clock.now += 20
        error = await refusal(admin)
    assert (error.reason == "issuer_unavailable") is (name == "ca.pem")
    assert ("ca.pem cannot be read" if name == "ca.pem" else "issuer_url") in error.message


@pytest.mark.parametrize("promised", ["9" * 400, "-1", "0", "NaN", '"7"'])
async def test_a_lifetime_that_is_none_is_not_believed(issuing, broker, clock, promised):
    issuing.server.on("POST", TOKEN, Response(f'{{"access_token": "t0ken", "expires_in": {promised}}}'))
    async with admitted(issuing, broker) as admin:
        await admin.brokers()
        clock.now += 2
        await admin.brokers()
    assert [seen.token for seen in broker.seen] == ["Bearer t0ken"] * 2
    assert issuing.server.paths.count(f"POST {TOKEN}") == 1


@pytest.mark.parametrize(("kind", "said"), [("pipe", "is not a regular file"), ("large", "is larger than")])
async def test_only_a_regular_file_of_limited_size_is_read(broker, tmp_path, kind, said):
    if kind == "pipe":
        os.mkfifo(tmp_path / "token")
    else:
        (tmp_path / "token").write_bytes(b"x" * (1024 * 1024 + 1))
    async with connect(broker, token=None, token_file=tmp_path / "token") as admin:
        error = await refusal(admin)
    assert (error.reason, said in error.message, error.sent) == ("credentials_file", True, False)


async def test_a_refused_token_is_replaced_once_and_an_unload_is_sent_again(issuing, clock):
    """The second hop refuses: only that hop is repeated."""
    with brokers(2) as (leader, owner):
        leader.redirect("PUT", UNLOAD, f"{owner.url}{UNLOAD}?authoritative=true")

        async def judge(request: Request) -> Response:
            ok = request.headers["authorization"] == f"Bearer {issuing.issued[-1]}" and len(issuing.issued) > 1
            return Response(status_code=204) if ok else Response(JETTY_401, 401)

        owner.on("PUT", UNLOAD, judge)
        async with admitted(issuing, leader) as admin:
            await admin.brokers()
            clock.now += 2
            await admin.bundles.unload(BUNDLE, owner.id)
    assert leader.paths.count(f"PUT {UNLOAD}") == 1
    assert [seen.token for seen in owner.seen] == [f"Bearer {token}" for token in issuing.issued]
    assert len(issuing.issued) == 2


def answer(body: str | bytes, status: int = 200) -> Response:
    return Response(body, status)


@pytest.mark.parametrize(
    ("path", "reply", "reason", "named"),
    [
        (DISCOVERY, answer("no such page", 404), "issuer_unavailable", "answered 404"),
        (DISCOVERY, answer('{"error": "forbidden"}', 403), "issuer_unavailable", "answered 403"),
        (
            DISCOVERY,
            Response(status_code=302, headers={"Location": "https://other.example"}),
            "issuer_unavailable",
            "302",
        ),
        (DISCOVERY, answer('{"token_endpoint": "https://127.0.0.1:1/"}', 500), "issuer_unavailable", "answered 500"),
        (DISCOVERY, answer("<html>"), "issuer_unavailable", "but the answer is not a JSON object"),
        (DISCOVERY, answer("[" * 9000), "issuer_unavailable", "but the answer is not a JSON object"),
        (DISCOVERY, answer("{" + " " * 70_000 + "}"), "issuer_unavailable", "longer than 65536 bytes"),
        (DISCOVERY, answer("{" + " " * 65_534 + "}"), "issuer_unavailable", "the answer has no https token_endpoint"),
        (DISCOVERY, answer('{"token_endpoint": "http://127.0.0.1:1/"}'), "issuer_unavailable", "token_endpoint"),
        (DISCOVERY, answer('{"token_endpoint": "https://[::1"}'), "issuer_unavailable", "no token from"),
        (DISCOVERY, answer('{"token_endpoint": "https://127.0.0.1:99999/"}'), "issuer_unavailable", "token_endpoint"),
        (TOKEN, answer(b"\xff"), "issuer_unavailable", "but the answer is not a JSON object"),
        (TOKEN, answer('{"access_token": ""}'), "issuer_unavailable", "without an access_token"),
        (TOKEN, answer('{"access_token": "a b"}'), "issuer_unavailable", "without an access_token"),
        (TOKEN, answer('{"access_token": 7}'), "issuer_unavailable", "without an access_token"),
        (TOKEN, answer('{"access_token": "t0ken"}', 500), "issuer_unavailable", "answered 500"),
        (TOKEN, answer('{"error": ["x"], "error_description": null}', 400), "issuer_refused", "answered 400"),
        (TOKEN, answer("{}", 403), "issuer_refused", "answered 403"),
        (TOKEN, answer(f'{{"error": "bad {SECRET}"}}', 401), "issuer_refused", "bad ***"),
    ],
)
async def test_an_issuer_that_answers_nonsense(issuing, broker, path, reply, reason, named):
    issuing.server.on("GET" if path == DISCOVERY else "POST", path, reply)
    async with admitted(issuing, broker) as admin:
        error = await refusal(admin)
    assert (error.reason, error.sent, error.broker != "") == (reason, False, True)
    assert named in error.message
    assert SECRET not in error.message
    assert broker.seen == []


async def test_an_issuer_that_cannot_be_reached_or_trusted(issuing, broker, monkeypatch):
    async def silent(_: Request) -> Response:
        await asyncio.sleep(60)
        raise AssertionError

    for changes, named in (
        ({"issuer_url": f"https://{closed_port()}"}, "connection"),
        ({"ca_file": None}, "CERTIFICATE_VERIFY_FAILED"),
    ):
        async with admitted(issuing, broker, **changes) as admin:
            error = await refusal(admin)
        assert error.reason == "issuer_unavailable"
        assert named in error.message
    assert issuing.server.seen == []
    monkeypatch.setattr(tokens, "_TIMEOUT_S", 0.2)
    issuing.server.on("POST", TOKEN, silent)
    async with admitted(issuing, broker) as admin:
        error = await refusal(admin)
    assert (error.reason, "no answer within 0.2 s (TimeoutError)" in error.message) == ("issuer_unavailable", True)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot be read: No such file"),
        ("", "must be JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
        ("[1]", "client_id and client_secret"),
        ("[" * 9000, "client_id and client_secret"),
        ({"client_secret": ""}, "client_id and client_secret"),
        ({"client_id": 7}, "client_id and client_secret"),
        ({"type": "sn_service_account"}, "of type client_credentials"),
    ],
)
async def test_a_credentials_file_that_cannot_be_used(issuing, broker, content, named):
    path = issuing.credentials_file(**content) if isinstance(content, dict) else issuing.folder / "other.json"
    if isinstance(content, str | bytes):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    async with admitted(issuing, broker, credentials_file=path) as admin:
        error = await refusal(admin)
    assert error.reason == "credentials_file"
    assert str(path) in error.message
    assert named in error.message
    assert issuing.server.seen == broker.seen == []


# a file


async def test_a_success_ends_the_failure_of_a_token_file(tmp_path, clock):
    file = tmp_path / "token"
    held = tokens.Tokens(AdminConnection(seeds=("http://127.0.0.1:1",), token_file=file))
    assert held.get_in_thread() == ""
    with pytest.raises(AdminError, match="cannot be read"):
        await held.get()
    file.write_text("second")

    assert await held.get() == "second"
    assert await held.get(rejected_token="second") == "second"
    assert held.mask.hide("a second one") == "a *** one"
    file.write_text("third")
    assert await held.get() == "second"
    clock.now += 2
    assert await asyncio.to_thread(held.get_in_thread) == "third"


async def test_a_token_file_is_read_again(tmp_path, broker, clock):
    file = tmp_path / "token"
    file.write_text("first\n")
    async with connect(broker, token=None, token_file=file) as admin:
        await admin.brokers()
        file.write_text("second")
        clock.now += 2
        await admin.brokers()
        file.write_text("")  # while it is replaced
        clock.now += 2
        await admin.brokers()
        accept(broker, "GET", LIST, "third", body=json.dumps([broker.id]))
        file.write_text("third")  # and the second one is withdrawn at once
        await admin.brokers()
        assert [seen.token for seen in broker.seen] == [f"Bearer {t}" for t in ("first", "second", "second", "third")]
        file.unlink()
        accept(broker, "GET", LIST, "fourth")
        error = await refusal(admin)
    assert error.reason == "credentials_file"


# secrets


async def test_only_one_source_of_tokens_and_no_secret_without_tls(issuing, broker):
    with pytest.raises(SettingsError, match="only one of token, token_file and credentials_file"):
        AdminConnection(seeds=(broker.url,), token_file=issuing.folder, oauth2=OAuth2(credentials_file=issuing.folder))
    for url in ("http://127.0.0.1", "https://user:w0rd@127.0.0.1", "127.0.0.1"):
        for changes in ({"issuer_url": url}, {"credentials_file": issuing.credentials_file("b.json", issuer_url=url)}):
            async with admitted(issuing, broker, **changes) as admin:
                with pytest.raises(SettingsError, match="issuer_url: ") as refused:
                    await admin.brokers()
            assert "w0rd" not in str(refused.value)
    assert issuing.server.seen == []
