from typing import Any

import pytest
from pydantic import SecretStr

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin

SEED = ("http://seed.example:8080",)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"seeds": ()}, "seeds"),
        ({"seeds": ("seed.example:8080",)}, "seeds"),
        ({"seeds": ("pulsar://seed.example:6650",)}, "seeds"),
        ({"seeds": ("http://:8080",)}, "seeds"),
        ({"seeds": ("http://seed.example:99999",)}, "seeds"),
        ({"seeds": ("http://seed.example:0",)}, "seeds"),
        ({"seeds": ("http://seed.example\0",)}, "seeds"),
        ({"seeds": ("http://seed.example:\u0661",)}, "seeds"),
        ({"seeds": ("http://[::1",)}, "seeds"),
        ({"seeds": ("http://seed.example/?a=b",)}, "seeds"),
        ({"address_map": {"b:1": "nowhere"}}, "address_map[b:1]"),
        ({"address_template": "http://{index}.example"}, "address_template"),
        ({"address_template": "http://{host.nothing}"}, "address_template"),
        ({"address_template": "http://{"}, "address_template"),
        ({"service_url": "http://b:8080"}, "service_url"),
        ({"service_url": "pulsar://b"}, "service_url"),
        ({"service_url": "pulsar://b:6650/x"}, "service_url"),
        ({"connect_timeout_s": 0}, "connect_timeout_s"),
        ({"read_timeout_s": -1.0}, "read_timeout_s"),
        ({"unload_timeout_s": float("nan")}, "unload_timeout_s"),
        ({"max_answer_bytes": 0}, "max_answer_bytes"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_wrong_setting_is_named(options, key):
    with pytest.raises(SettingsError) as caught:
        AdminConnection(**{"seeds": SEED, **options})
    assert caught.value.reason == "wrong_setting"
    assert str(caught.value).startswith(key)


QUERIES = ("?token=s3cret", "/?token=s3cret", "#s3cret", "/%40s3cret?", "\t?s3cret", "/a b?s3cret")


@pytest.mark.parametrize(
    "options",
    [
        {"seeds": ("http://user:s3cret@seed.example:8080",)},
        {"seeds": ("http://user:s3cret@[::",)},
        {"address_map": {"b:1": "http://user:s3cret@b:1"}},
        {"address_map": {"user:s3cret@b:1": "nowhere"}},
        {"address_template": "http://user:s3cret@{host}:{port}"},
        {"address_template": "http://user:s3cret@{index}"},
        {"service_url": "pulsar://user:s3cret@b:6650"},
        {"service_url": "pulsar://b:6650/?token=s3cret"},
        *({"seeds": (f"http://seed.example:8080{query}",)} for query in QUERIES),
        *({"address_map": {"b:1": f"http://b:1{query}"}} for query in QUERIES),
        *({"address_template": f"http://{{host}}:{{port}}{query}"} for query in QUERIES),
        {"token": SecretStr("s3cret\r\nX-Other: 1")},
        {"token": SecretStr("s3cret é")},
        {"token": SecretStr("")},
        {"token": "s3cret"},
    ],
)
def test_wrong_secret_is_refused_and_not_shown(options):
    with pytest.raises(SettingsError) as caught:
        AdminConnection(**{"seeds": SEED, **options})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"seeds": ("https://a:8443", "http://b:8080")},
        {"address_map": {"b:1": "https://b:1"}},
        {"address_template": "https://{host}:8443"},
    ],
)
def test_http_and_https_do_not_mix(options):
    with pytest.raises(SettingsError) as caught:
        AdminConnection(**{"seeds": SEED, **options})
    assert caught.value.reason == "contradiction"


def test_base_url_prefers_map_over_template_over_the_id_itself():
    plain = AdminConnection(seeds=("https://seed:8443/",))
    assert plain.seeds == ("https://seed:8443",)
    assert plain.base_url("b1:8080") == "https://b1:8080"
    both = AdminConnection(
        seeds=("https://seed:8443",),
        address_map={"B1.pulsar:8080": "https://Gateway:1/b1/"},
        address_template="https://{host}.example:8{port}/",
    )
    assert both.base_url("b1.pulsar:8080") == "https://gateway:1/b1"
    assert both.base_url("b2:443") == "https://b2.example:8443"
    bracketed = AdminConnection(seeds=SEED, address_template="http://{host}:{port}")
    assert bracketed.base_url("[::1]:8080") == "http://[::1]:8080"


def test_unusable_certificate_files_are_named(tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for key in ("ca_file", "client_cert_file"):
        for file in (empty, tmp_path / "missing.pem"):
            options: dict[str, Any] = {key: file}
            with pytest.raises(SettingsError) as caught:
                PulsarAdmin(AdminConnection(seeds=SEED, **options))
            assert str(caught.value).startswith(key)
            assert file.name in str(caught.value)
