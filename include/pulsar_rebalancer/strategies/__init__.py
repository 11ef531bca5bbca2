"""Pulsar's shedding and placement strategies: one cluster at a time, meant to be read."""
