"""DAGs to start from: copy one into the DAGs folder, and put in the names of your cluster and connections."""
