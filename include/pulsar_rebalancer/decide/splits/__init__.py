"""Splitting bundles: which ones, and where to cut them."""
