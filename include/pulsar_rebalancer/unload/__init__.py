"""Carrying out a recorded plan: the gate, the verified moves, and their history."""
