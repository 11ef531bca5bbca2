"""Example DAGs. Airflow does not load them: copy one into the DAGs folder, and insert your cluster's name."""
