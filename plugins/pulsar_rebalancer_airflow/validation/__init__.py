"""Validation of a sample with Great Expectations, and a page with the result."""
