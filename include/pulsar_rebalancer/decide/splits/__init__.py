"""Splitting bundles: which bundles to split, and at which positions."""
