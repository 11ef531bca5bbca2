import json
from typing import Any

import pytest

from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook

TOKEN = "eyJhbGciOiJIUzI1NiJ9.payload-of-a-super-user.signature"


def settings_of(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> AdminConnection:
    document = {"conn_type": "pulsar_admin", "host": "broker-0"} | fields
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_X", json.dumps(document))
    return PulsarAdminHook("pulsar_x").get_connection_settings()


def test_reads_every_field(monkeypatch):
    settings = settings_of(
        monkeypatch,
        host="broker-0, broker-1:9443,[::1],[::1]:9443,2001:db8::7",
        port=8443,
        schema="https",
        password=TOKEN,
        extra={
            "ca_file": "ca.pem",
            "client_cert": "me.pem",
            "client_key": "me.key",
            "read_only": True,
            "address_map": '{"broker-0:8443": "https://gateway:1"}',
            "address_template": "https://{host}.example:{port}",
            "service_url": "pulsar+ssl://broker-0:6651",
            "answer_timeout_seconds": 12,
        },
    )

    assert settings.seeds == (
        *("https://broker-0:8443", "https://broker-1:9443"),
        *("https://[::1]:8443", "https://[::1]:9443", "https://[2001:db8::7]:8443"),
    )
    assert settings.token is not None
    assert settings.token.get_secret_value() == TOKEN
    assert [str(p) for p in (settings.ca_file, settings.client_cert_file, settings.client_key_file)] == [
        "ca.pem",
        "me.pem",
        "me.key",
    ]
    assert settings.read_only
    assert settings.base_url("broker-0:8443") == "https://gateway:1"
    assert settings.base_url("broker-7:8443") == "https://broker-7.example:8443"
    assert settings.service_url == "pulsar+ssl://broker-0:6651"
    assert settings.read_timeout_s == 12


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "host"),
        ({"host": "broker-0:99999"}, "'http://broker-0:99999'"),
        ({"schema": "ftp"}, "'ftp'"),
        ({"extra": "[1]"}, "expected a JSON object"),
        ({"extra": {"address_map": '{"b:1":' * 5000 + "1" + "}" * 5000}}, "address_map"),
        ({"extra": {"readonly": True}}, "readonly"),  # misspelt: must not let writes through
        ({"extra": {"read_only": "yes"}}, "'yes'"),
        ({"extra": {"answer_timeout_seconds": "soon"}}, "'soon'"),
        ({"extra": {"answer_timeout_seconds": 0}}, "read_timeout_s"),
        ({"extra": {"address_map": "broker-0=x"}}, "address_map"),
        ({"extra": {"address_map": {"broker-0:8080": "https://x"}}}, "mix http and https"),
        ({"extra": {"audience": "urn:pulsar"}}, "credentials_file"),
        ({"extra": {"token_file": "t"}}, "only one of token, token_file and credentials_file"),
        ({"schema": "https", "extra": {"service_url": "pulsar://broker-0:6650"}}, "service_url"),
    ],
)
def test_refuses_with_the_connection_and_the_field(monkeypatch, fields, named):
    with pytest.raises(SettingsError) as refused:
        settings_of(monkeypatch, password=TOKEN, **fields)

    assert "connection pulsar_x" in str(refused.value)
    assert named in str(refused.value)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("text", ["true", "True", True])
def test_read_only_as_forms_and_uris_write_it(monkeypatch, text):
    assert settings_of(monkeypatch, extra={"read_only": text}).read_only


def test_names_the_brokers_that_do_not_answer(served):
    broker = served.cluster.active_brokers()[2]
    served.cluster.faults.add("forbidden", broker)

    ok, sentence = PulsarAdminHook("pulsar_test").test_connection()

    assert not ok
    assert sentence.startswith("3 of 4 brokers answered")
    assert broker in sentence
    assert "forbidden" in sentence


@pytest.mark.parametrize("ok", [True, False])
def test_brokers_that_give_no_report_are_asked_for_metrics(served, monkeypatch, ok):
    async def metrics(_: object, broker: str) -> list[dict[str, Any]]:
        if ok or broker != served.cluster.active_brokers()[2]:
            return []
        raise AdminError(Reason.FORBIDDEN, f"{broker}: no")

    monkeypatch.setattr(PulsarAdmin, "metrics", metrics)
    served.cluster.faults.add("error_500")  # as the extensible load manager answers
    answered, sentence = PulsarAdminHook("pulsar_test").test_connection()

    assert answered is ok
    assert sentence.startswith(f"{4 if ok else 3} of 4 brokers answered")
