"""The tables and documents of a run: its request, input, findings, plan and outcome."""
