"""Splitting bundles: where to cut them, which ones, and carrying that out."""
