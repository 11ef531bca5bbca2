"""Read what isolation policies, anti-affinity groups and failure domains say about brokers and bundles."""
