"""An async client for Pulsar's admin REST API."""

from __future__ import annotations

from pulsar_rebalancer.pulsar.bundle_calls import BundleAdmin, LookupResult
from pulsar_rebalancer.pulsar.client import PulsarAdmin
from pulsar_rebalancer.pulsar.connection import AdminConnection, OAuth2

__all__ = ["AdminConnection", "BundleAdmin", "LookupResult", "OAuth2", "PulsarAdmin"]
