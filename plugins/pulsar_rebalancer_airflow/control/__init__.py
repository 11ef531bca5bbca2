"""The actions of `pulsar_control__<cluster>`, one module per subject."""
