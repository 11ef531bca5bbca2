"""Pulsar's shedders, which choose the bundles to move away from a broker. Each shedder is a module."""
