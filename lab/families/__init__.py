"""Families of sustained load: days of drawn load by which strategies are judged (docs/evidence.md)."""
