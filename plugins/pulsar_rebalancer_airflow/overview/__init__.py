"""A cluster's page in the Airflow UI. It shows the documents of `pulsar_rebalancer.show.page`."""
