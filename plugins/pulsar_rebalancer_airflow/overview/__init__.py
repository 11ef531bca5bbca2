"""A cluster's page inside the Airflow UI: serves and draws the models of `pulsar_rebalancer.show.page`."""
