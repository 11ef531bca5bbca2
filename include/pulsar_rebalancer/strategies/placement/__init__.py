"""Pulsar's placement strategies, which choose a bundle's destination from the candidate brokers."""
