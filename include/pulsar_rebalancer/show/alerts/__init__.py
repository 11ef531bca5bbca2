"""Alerts: the conditions, the time of a message, and its text."""
