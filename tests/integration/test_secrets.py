"""Secrets stay where they belong, and files with their owner, whatever a run comes to."""

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.settings import engine
from sqlalchemy import MetaData, select
from tests.airflow_home import HOME
from tests.hostile_names import BUNDLES, NAMES
from tests.integration.airflow_world import World, world
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import mail_server, webhook
from tests.private_files import leaks, open_to_others, texts_below
from tests.pulsar.credentials import make_certificates
from tests.token_issuer import SECRET, TokenIssuer, token_issuer

from pulsar_rebalancer import texts
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer_airflow import notifications as notifier_module
from pulsar_rebalancer_airflow.operators import collect as collect_module

pytestmark = pytest.mark.integration

HOOK_KEY, SMTP_PASSWORD = "hook-k3y/with?signs", "smtp p4ssword%"
EXTRA, WRONG_TOKEN = "extra-s3cret-value", "wrong-t0ken-of-nobody"
SETTINGS = {"mode": "auto", "interval_seconds": 3600, "alert_connection": "vault_alerts", "low_threshold": 5}


def connect(vault: World, issuing: TokenIssuer, patch: pytest.MonkeyPatch, **changes: Any) -> None:
    """By default, the issuer issues the token."""
    host = ",".join(url.removeprefix("http://") for url in vault.served.urls)
    document = {"conn_type": "pulsar_admin", "host": host, "extra": issuing.extra()} | changes
    patch.setenv("AIRFLOW_CONN_PULSAR_VAULT", json.dumps(document))


def database() -> Iterator[tuple[str, str]]:
    """Every row of the metadata database: XComs, rendered templates, serialized DAGs, asset state, events."""
    tables = MetaData()
    assert engine is not None
    tables.reflect(engine)
    with engine.connect() as connection:
        for name, table in tables.tables.items():
            for row in connection.execute(select(table)):
                yield (
                    f"table {name}",
                    " ".join(
                        value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row
                    ),
                )


@pytest.fixture
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_usual_umask")
def test_no_secret_is_left_anywhere(tmp_path, monkeypatch, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(notifier_module, "SEND_TIMEOUT_SECONDS", 120)
    keys = tmp_path / "keys"
    keys.mkdir()
    pair = make_certificates(keys)
    wrong = keys / "wrong-token"
    wrong.write_text(WRONG_TOKEN)
    tls = {"ca_file": str(pair.ca_file), "client_cert": str(pair.server_file), "client_key": str(pair.key_file)}
    places, work = tmp_path / "vault", tmp_path / "work"
    places.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    started: list[str] = []
    start = subprocess.Popen.__init__

    def note(self: Any, command: Any, *rest: Any, **options: Any) -> None:
        started.append(str(command))
        start(self, command, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", note)
    issuers = token_issuer(keys)
    with webhook() as hook, mail_server() as mails, issuers as issuing, world("vault", places, **SETTINGS) as vault:
        issuing.constant = vault.served.token
        connect(vault, issuing, monkeypatch)
        receivers = [
            {"path": f"json://127.0.0.1:{hook.port}/{HOOK_KEY.replace('/', '%2F').replace('?', '%3F')}"},
            {
                "path": f"mailto://ada:{SMTP_PASSWORD.replace('%', '%25').replace(' ', '%20')}@127.0.0.1:{mails.port}"
                "?from=ada@example.com&to=ops@example.com&mode=insecure"
            },
        ]
        alerts = {"conn_type": "apprise", "extra": {"config": receivers}}
        monkeypatch.setenv("AIRFLOW_CONN_VAULT_ALERTS", json.dumps(alerts))

        # Names that mean something elsewhere go all the way too, through Spark and the metadata database.
        broker = vault.served.cluster.active_brokers()[0]
        for bundle in BUNDLES:
            vault.served.cluster.faults.add("odd_bundle", broker, target=bundle)
        typed = "".join(name for name in NAMES if "\0" not in name)  # a form refuses control characters
        good = vault.run(force=typed)
        vault.served.cluster.faults.clear()
        ended = [vault.run("watch"), vault.run("maintenance", dry_run=False), vault.run("control", action="export")]
        failed = []
        for changes in (
            {"password": WRONG_TOKEN, "extra": {}},
            {"extra": {"token_file": str(wrong)}},
            {"extra": issuing.extra() | {"audience": "unknown"}},  # the issuer answers with the client's secret
            {"schema": "https", "password": vault.served.token, "extra": tls},
            {"extra": {"api_key": EXTRA}},
            {"password": f"{vault.served.token}\nX-Header: {EXTRA}", "extra": {}},
        ):
            connect(vault, issuing, monkeypatch, **changes)
            failed.append(vault.run())
        connect(vault, issuing, monkeypatch)
        with monkeypatch.context() as broken:
            broken.setattr(collect_module, "write_sample", lambda *_: 1 / 0)
            failed.append(vault.run())
        pages = [(name, dag.doc_md or "") for name, dag in vault._bag().dags.items()]
        token = vault.served.token
    assert issuing.issued

    said = capfd.readouterr()
    assert (good.state, {run.state for run in ended}) == ("success", {"success"})
    assert good.xcom("report")["moved"] > 0
    assert set(Validation.read(good.folder).quarantine_reasons) & set(BUNDLES)
    assert RunRequest.read(good.folder).params.force == texts.cleaned_input(typed)
    assert not list(work.iterdir())
    assert {run.states["collect"] for run in failed} == {"failed"}
    words = ("[unauthorized]", "[issuer_refused]", "unknown audience, ***", "[unreachable]")
    for word in (*words, "unknown keys api_key", "value not shown", "ZeroDivisionError"):
        assert word in said.out + said.err + caplog.text, word
    assert hook.messages
    assert mails.mails

    key = "".join(pair.key_file.read_text().splitlines()[1:-1])
    secrets = {
        "token": token,
        "wrong token": WRONG_TOKEN,
        "client's secret": SECRET,
        "extra": EXTRA,
        "webhook": HOOK_KEY,
        "mail": SMTP_PASSWORD,
        "private key": key[:64],
        "end of private key": key[-40:],
    }
    # What is no secret is found in each of these places: they are looked through.
    commands = [("command line", command) for command in started]
    for place in (database(), texts_below(places), commands, [("output", said.out + said.err + caplog.text)]):
        assert leaks({"bundle": good.folder.name}, place)
    found = leaks(secrets, [("output", said.out + said.err), ("log", caplog.text), *pages, *commands])
    found |= leaks(secrets, [("message", str(hook.messages)), ("mail", str([str(mail) for mail in mails.mails]))])
    found |= leaks(secrets, database()) | leaks(secrets, texts_below(HOME)) | leaks(secrets, texts_below(places))
    assert found == set()
    assert open_to_others(places / "runs") == []
