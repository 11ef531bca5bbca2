"""Sample clusters under Pulsar's ExtensibleLoadManagerImpl, whose brokers give no load report.

Equivalent reports are built from the admin REST API (`broker-stats` of each broker) and from what brokers publish on
two non-persistent system topics: their moving averages and their top bundles.
"""

from pulsar_rebalancer.collect.extensible.reports import load_reports

__all__ = ["load_reports"]
