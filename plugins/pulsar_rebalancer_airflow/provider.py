"""The provider information for Airflow, which is the only place to register a connection type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

HOOK = "pulsar_rebalancer_airflow.hooks.pulsar_admin.PulsarAdminHook"


def get_provider_info() -> dict[str, JsonValue]:
    """Return the connection type `pulsar_admin` with its form, for the entry point `apache_airflow_provider`."""
    return {
        "package-name": "pulsar-rebalancer",
        "name": "Pulsar rebalancer",
        "description": "Load rebalancing of Apache Pulsar clusters from the outside.",
        "integrations": [{"integration-name": "Apache Pulsar", "external-doc-url": "https://pulsar.apache.org/"}],
        "hooks": [
            {"integration-name": "Apache Pulsar", "python-modules": ["pulsar_rebalancer_airflow.hooks.pulsar_admin"]}
        ],
        "connection-types": [
            {
                "hook-class-name": HOOK,
                "hook-name": "Apache Pulsar admin",
                "connection-type": "pulsar_admin",
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "extra"],
                    "relabeling": {"schema": "Scheme", "password": "Token"},
                    "placeholders": {
                        "host": "broker-0.example.com, or several separated by commas",
                        "port": "8080, or 8443 for https",
                        "schema": "http or https",
                        "password": "JSON web token of a super-user",
                    },
                },
                "conn-fields": {
                    "ca_file": _text("CA file", "PEM file of the only certificate authority to trust"),
                    "client_cert": _text("Client certificate", "PEM file"),
                    "client_key": _text("Client key", "PEM file; empty if the certificate's file contains the key"),
                    "read_only": {
                        "label": "Read-only",
                        "description": "Refuse every request that is not a GET, before it is sent",
                        "schema": {"type": ["boolean", "null"], "default": False},
                    },
                    "address_map": _text(
                        "Address map",
                        'URL by brokerId, as JSON: {"broker-0:8080": "http://127.0.0.1:18080"}',
                    ),
                    "address_template": _text(
                        "Address template",
                        "URL with {host} and {port} of the brokerId, for brokers missing from the map",
                    ),
                    "service_url": _text(
                        "Service URL",
                        "pulsar+ssl://broker-0:6651, for the extensible load manager; empty to query the brokers",
                    ),
                    "timeout_seconds": {
                        "label": "Time-out",
                        "description": "Maximum seconds until an answer is complete",
                        "schema": {"type": ["number", "null"], "exclusiveMinimum": 0},
                    },
                },
            }
        ],
    }


def _text(label: str, description: str) -> dict[str, JsonValue]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
