"""What operators decide: settings of a cluster, the clusters file, and which source wins."""
