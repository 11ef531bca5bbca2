"""Interpret isolation policies, anti-affinity groups and failure domains for brokers and bundles."""
