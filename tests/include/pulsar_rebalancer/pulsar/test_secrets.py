import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.certificates import Authority
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import (
    BUNDLE,
    JETTY_401,
    LOOKUP,
    REPORT,
    TOKEN,
    TOPIC,
    UNLOAD,
    brokers,
    closed_port,
    connect,
)

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import AdminConnection

pytestmark = pytest.mark.anyio


def tls(files: tuple[Path, Path], **options: Any) -> dict[str, Any]:
    return {"ssl_certfile": str(files[0]), "ssl_keyfile": str(files[1]), **options}


async def test_private_authority_and_redirects_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    with brokers(2, host="localhost", **tls(authority.issue("localhost"))) as (seed, owner):
        # Whatever scheme a redirect names, the connection's own is used: the token stays encrypted.
        seed.redirect("GET", LOOKUP, f"http://{owner.id}{LOOKUP}")
        owner.on("GET", LOOKUP, {"httpUrl": f"http://{owner.id}", "httpUrlTls": f"https://{owner.id}"})
        async with connect(f"https://{seed.id}", ca_file=authority.file) as admin:
            assert (await admin.bundles.lookup(TOPIC)).http_url == f"https://{owner.id}"
        assert owner.seen[-1].token == f"Bearer {TOKEN}"


async def test_wrong_host_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    with brokers(1, host="localhost", **tls(authority.issue("other.example"))) as (broker,):
        async with connect(f"https://{broker.id}", ca_file=authority.file) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert broker.seen == []
    assert caught.value.reason == "certificate_refused"
    assert "Hostname mismatch" in str(caught.value)


async def test_wrong_authority_is_refused(tmp_path: Path) -> None:
    issuing, trusted = Authority(tmp_path, "issuing"), Authority(tmp_path, "trusted")
    with brokers(1, host="localhost", **tls(issuing.issue("localhost"))) as (broker,):
        for ca_file in (trusted.file, None):
            async with connect(f"https://{broker.id}", ca_file=ca_file) as admin:
                with pytest.raises(AdminError) as caught:
                    await admin.brokers()
            assert caught.value.reason == "certificate_refused"
            assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
        async with connect(f"https://{closed_port()}", f"https://{broker.id}", ca_file=trusted.file) as admin:
            for asked, reason in (
                (admin.brokers(), "unreachable"),
                (admin.load_report(broker.id), "certificate_refused"),
            ):
                with pytest.raises(AdminError) as caught:
                    await asked
                assert caught.value.reason == reason
        assert broker.seen == []


async def test_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    options = tls(authority.issue("localhost"), ssl_cert_reqs=2, ssl_ca_certs=str(authority.file))
    certificate, key = authority.issue("rebalancer")
    with brokers(1, host="localhost", **options) as (broker,):
        async with connect(
            f"https://{broker.id}",
            ca_file=authority.file,
            client_cert_file=certificate,
            client_key_file=key,
            token=None,
        ) as admin:
            assert await admin.brokers() == [broker.id]
        assert broker.seen[0].token == ""
        async with connect(f"https://{broker.id}", ca_file=authority.file) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert caught.value.reason == "unreachable"
        assert len(broker.seen) == 1


# secrets


async def test_proxy_of_the_environment_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with brokers(1) as (broker,), brokers(1) as (proxy,):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with connect(broker) as admin:
            assert await admin.brokers() == [broker.id]
        assert proxy.seen == []


async def test_token_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = AdminConnection(seeds=("http://b:80",), token=SecretStr(TOKEN))
    texts = [repr(connection), str(connection)]

    with brokers(2) as (broker, other):

        async def echo(request: Request) -> Response:
            return JSONResponse({"reason": f"refused {request.headers['authorization']}"}, 401)

        broker.on("GET", REPORT, echo)
        broker.on("PUT", UNLOAD, Response(JETTY_401, 401))
        broker.redirect("GET", LOOKUP, "http://stranger.example/")
        other.redirect("GET", REPORT, broker.url)
        async with connect(broker) as admin:
            texts += [repr(admin), str(vars(admin))]
            for call in (
                admin.load_report(broker.id),
                admin.load_report(other.id),
                admin.load_report(closed_port()),
                admin.bundles.unload(BUNDLE, broker.id),
                admin.bundles.lookup(TOPIC),
                admin.anti_affinity_group("a/b"),
            ):
                with pytest.raises(AdminError) as caught:
                    await call
                texts += [str(caught.value), repr(caught.value)]
                texts += traceback.format_exception(caught.value)
        assert broker.seen[0].token == f"Bearer {TOKEN}"
    assert "refused Bearer ***" in "".join(texts)
    assert "load-report" in caplog.text
    for text in (*texts, caplog.text):
        assert TOKEN not in text


"""A token that is no JSON web token: its signs are escaped where it is quoted."""

FORMS = {
    "as it is": TOKEN,
    "in the midst of a long text": "x" * 150 + TOKEN,
    "escaped slashes and dots": json.dumps(f"Bearer {TOKEN}").replace(".", "\\u002e").replace("/", "\\/")[1:-1],
    "every character escaped": "".join(f"\\u{ord(c):04x}" for c in TOKEN),
}


def shows(text: str) -> bool:
    """Whether the text contains 16 consecutive characters of the token, in upper or lower case."""
    return any(TOKEN[i : i + 16].lower() in text.lower() for i in range(len(TOKEN) - 15))


@pytest.mark.parametrize("name", FORMS)
async def test_an_echoed_token_shows_in_no_form(name: str) -> None:
    form = FORMS[name]
    reason, listed = f'{{"reason": "refused {form}"}}', f'["{form}"]'
    owner = f'{{"httpUrl": "http://b:80", "brokerUrl": "{form}"}}'
    with brokers(1) as (broker,):
        broker.on("GET", REPORT, Response(reason, 500))
        broker.on("PUT", UNLOAD, Response(reason, 412))
        broker.on("GET", "/admin/v2/brokers/leaderBroker", Response(f'{{"brokerId": "{form}"}}'))
        broker.on("GET", "/admin/v2/brokers", Response(listed))
        broker.on("GET", "/lookup/v2/topic/persistent/a/b/c", Response(owner))
        texts = []
        async with connect(broker) as admin:
            for call in (
                admin.load_report(broker.id),
                admin.bundles.unload(BUNDLE, broker.id),
                admin.leader(),
                admin.brokers(),
                admin.bundles.service_url("persistent://a/b/c"),
            ):
                with pytest.raises(AdminError) as caught:
                    await call
                texts += traceback.format_exception(caught.value)
    for text in texts:
        assert not shows(text), text
