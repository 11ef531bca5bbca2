# One image for Airflow and for Spark's master and workers: the same Python, the same packages and the same user, so that
# executors load what the driver loads, and every container may read and replace what another wrote to a shared volume.
# Code and packages belong to root: the user that runs them cannot change them.
#
# The digest of the base image's multi-platform index is not filled in here: `deploy/pin_images.sh` asks your registry for
# it and writes it after the version, as @sha256:…

FROM apache/airflow:3.3.2-python3.11 AS build

USER root
RUN install --directory --owner=airflow --group=root /build /opt/pulsar-rebalancer
USER airflow
WORKDIR /build

# The installer comes from the lock too, its hash checked like all others.
COPY --chown=airflow:root requirements.lock pyproject.toml ./
COPY --chown=airflow:root include/pulsar_rebalancer/pyproject.toml include/pulsar_rebalancer/
COPY --chown=airflow:root deploy/built_here.txt deploy/
RUN awk '/^uv==/ {keep = 1} keep {print} keep && !/\\$/ {exit}' requirements.lock >uv.lock \
 && python3 -m venv tools \
 && PIP_USER=0 tools/bin/pip install --no-cache-dir --no-deps --require-hashes -r uv.lock

# An environment of its own: exactly what the lock says and the wheel needs, nothing of the base image's hundred
# providers, none of the development tools. Airflow is the lock's, the same version as the base image's.
RUN tools/bin/uv venv --python python3 /opt/pulsar-rebalancer \
 && tools/bin/uv pip install --no-cache --link-mode copy --compile-bytecode \
      --python /opt/pulsar-rebalancer/bin/python \
      --require-hashes --constraint requirements.lock --extra postgres --extra alerts --extra extensible --extra kubernetes \
      --excludes deploy/built_here.txt -r pyproject.toml -r include/pulsar_rebalancer/pyproject.toml

COPY --chown=airflow:root README.md LICENSE ./
COPY --chown=airflow:root include/ include/
COPY --chown=airflow:root plugins/ plugins/
COPY --chown=airflow:root spark_apps/ spark_apps/
COPY --chown=airflow:root expectations/ expectations/
RUN tools/bin/uv build --no-cache --wheel --out-dir dist --require-hashes --build-constraint requirements.lock \
 && tools/bin/uv build --no-cache --wheel --out-dir dist --require-hashes --build-constraint requirements.lock include/pulsar_rebalancer \
 && tools/bin/uv pip install --no-cache --no-deps --compile-bytecode \
      --python /opt/pulsar-rebalancer/bin/python dist/*.whl \
 && chmod -R a+rX,go-w /opt/pulsar-rebalancer


FROM apache/airflow:3.3.2-python3.11

USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
# A named volume takes over the owner of the folder that it covers.
RUN chown root:root /opt/airflow /opt/airflow/dags \
 && chmod 0755 /opt/airflow /opt/airflow/dags \
 && install --directory --mode=0755 /opt/airflow/clusters /opt/airflow/config \
 && install --directory --owner=airflow --group=root --mode=0750 \
      /opt/airflow/auth /opt/airflow/spark /opt/airflow/storage /opt/airflow/work

COPY --from=build --chown=root:root /opt/pulsar-rebalancer /opt/pulsar-rebalancer
ENV VIRTUAL_ENV=/opt/pulsar-rebalancer \
    PATH=/opt/pulsar-rebalancer/bin:${PATH}

# Spark's class archive halves the start of every run. Airflow writes generated keys into its home when it is first
# loaded: that home must not stay in the image.
RUN AIRFLOW_HOME=/tmp/airflow python -m pulsar_rebalancer_airflow.spark_archive /opt/airflow/spark.jsa \
 && chmod 0644 /opt/airflow/spark.jsa \
 && rm -rf /tmp/airflow
ENV AIRFLOW__PULSAR_REBALANCER__SPARK_ARCHIVE=/opt/airflow/spark.jsa

COPY --chown=root:root dags/ /opt/airflow/dags/
COPY --chown=root:root deploy/airflow_local_settings.py /opt/airflow/config/airflow_local_settings.py
RUN chmod -R a+rX,go-w /opt/airflow/dags /opt/airflow/config
USER airflow
