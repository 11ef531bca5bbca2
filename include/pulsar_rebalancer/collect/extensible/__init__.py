"""Sample clusters under Pulsar's ExtensibleLoadManagerImpl, whose brokers provide no load reports.

Equivalent reports are built from two sources: the admin REST API (`broker-stats` of each broker), and two
non-persistent system topics, on which brokers publish their moving averages and their top bundles.
"""

from pulsar_rebalancer.collect.extensible.reports import load_reports

__all__ = ["load_reports"]
