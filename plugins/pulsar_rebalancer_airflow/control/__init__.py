"""What `pulsar_control__<cluster>` does, one module for each subject."""
