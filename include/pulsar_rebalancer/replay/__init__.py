"""Replay recorded load through other strategies and settings, in a closed loop."""
