"""Alerts: their conditions, when messages are sent, and the text of messages."""
