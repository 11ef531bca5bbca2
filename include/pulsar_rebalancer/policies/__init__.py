"""Isolation policies, anti-affinity groups and failure domains, and their effect on brokers and bundles."""
