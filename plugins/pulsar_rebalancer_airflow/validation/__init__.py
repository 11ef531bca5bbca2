"""Validation of a sample with Great Expectations, and its result as a page."""
