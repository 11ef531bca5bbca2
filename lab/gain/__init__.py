"""Proof for GainShedder: its parts taken away one by one, controls, more seeds, and single cases before and after."""
