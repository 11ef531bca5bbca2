"""Pulsar's shedders, which choose the bundles that leave a broker; each shedder is a module."""
