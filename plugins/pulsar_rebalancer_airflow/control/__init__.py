"""The actions of the control DAG, one module per subject."""
