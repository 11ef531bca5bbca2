"""Pulsar's shedders, one module each: which bundles leave which broker."""
