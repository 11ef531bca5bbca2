"""What operators decide: a cluster's settings, the clusters file, and which source of a setting wins."""
