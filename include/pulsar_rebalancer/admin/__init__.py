"""An async client for Pulsar's admin REST API."""

from __future__ import annotations

from pulsar_rebalancer.admin.bundle_calls import BundleAdmin, LookupResult
from pulsar_rebalancer.admin.client import PulsarAdmin
from pulsar_rebalancer.admin.connection import AdminConnection, OAuth2

__all__ = ["AdminConnection", "BundleAdmin", "LookupResult", "OAuth2", "PulsarAdmin"]
