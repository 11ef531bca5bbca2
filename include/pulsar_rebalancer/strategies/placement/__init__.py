"""Pulsar's placement strategies, which choose a bundle's destination among the candidate brokers."""
