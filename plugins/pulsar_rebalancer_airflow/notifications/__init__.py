"""Alerts to people, and metrics for monitoring systems."""
