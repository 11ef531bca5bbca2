"""The tables and documents of a run: request, input, findings, plan and outcome."""
