# Two commands do everything: `make run` and `make test`. Both set up what they need first.
PYTHON_BIN := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DENO_DIR := $(CURDIR)/.cache/deno
# Python keeps what it compiles, whatever the environment says: Airflow starts a process for each task.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test test-system test-pulsar test-sdist test-versions coverage mutants lint audit setup lock docs wheel release benchmark experiments families clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## create the virtual environment from the lock, install Java for Spark
	@scripts/setup.sh

run: setup ## balance a simulated cluster; ONCE=1 exits when balanced; STRATEGY=OverloadShedder; PULSAR=http://broker:8080 observes your own; FOLDER=.run
	@$(PYTHON_BIN) -m pulsar_rebalancer_airflow.embedded $(if $(ONCE),--once) $(if $(PULSAR),--pulsar "$(PULSAR)") \
		$(if $(STRATEGY),--strategy "$(STRATEGY)") $(if $(FOLDER),--folder "$(FOLDER)")

# One worker more than cores: tests often wait. Workers take whole files, in the order of tests/conftest.py.
WORKERS := --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: setup ## run unit tests, Spark, DAGs in one process, the page in Chromium and one `make run`; TESTS=tests/include runs only those
	@$(PYTHON_BIN) -m pytest $(or $(TESTS),$(WORKERS))

SYSTEM = tests/integration tests/deployment tests/project tests/spark_apps tests/dags

test-system: setup ## run what needs Airflow's own processes, minutes, or ratios of time; PICTURES=1 takes the pictures of the page; SKIP leaves files out
	@$(if $(PICTURES),DRAW_PICTURES=1) $(PYTHON_BIN) -m pytest -m system $(or $(TESTS),$(WORKERS) $(SYSTEM) $(addprefix --ignore=,$(SKIP)))

# A third worker would slow the throttled brokers of the others. Those that are balanced run by run need the whole machine.
BALANCED := tests/pulsar/test_rebalance.py

test-pulsar: setup ## run the same DAG on real Pulsar brokers (Linux, cgroups, Maven)
	@$(PYTHON_BIN) -m pytest $(WORKERS:3=2) tests/pulsar --ignore=$(BALANCED)
	@$(PYTHON_BIN) -m pytest $(BALANCED)

mutants: setup ## put small faults into the code that decides and moves, list those that no test notices; SUBJECT=gate tries one part
	@$(PYTHON_BIN) -m scripts.mutants $(SUBJECT)

lint: setup ## check format, lint, types and dependency rules, also of the page's JavaScript
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports
	@$(PYTHON_BIN) scripts/plain_english.py
	@deno fmt --check --quiet
	@deno lint --quiet
	@deno check --quiet plugins
	@! grep -nrE --include '*.js' '.{121}' plugins tests # comments and texts, which no formatter breaks

audit: setup ## check the locked packages for known vulnerabilities; IGNORE=ID skips one
	@$(PYTHON_BIN) scripts/audit.py $(if $(IGNORE),--ignore $(IGNORE))

lock: setup ## renew requirements.lock from pyproject.toml
	@uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-annotate --group dev \
		--extra extensible --extra alerts --extra postgres --extra kubernetes --custom-compile-command "make lock" --upgrade \
		--excludes deploy/built_here.txt pyproject.toml include/pulsar_rebalancer/pyproject.toml -o requirements.lock
	@uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-annotate --group pyproject.toml:docs \
		--constraint requirements.lock --custom-compile-command "make lock" --upgrade -o docs/requirements.lock

# Sphinx documents the packages of the environment, next to which it is installed.
docs: setup ## build the documentation site into build/docs; a broken link fails
	@uv pip sync --quiet --target .cache/docs --require-hashes docs/requirements.lock
	@PYTHONPATH=.cache/docs $(PYTHON_BIN) -m sphinx --quiet --fail-on-warning --conf-dir docs . build/docs

wheel: setup ## build source distribution and wheels into dist/, and check them
	@$(PYTHON_BIN) scripts/release.py

release: setup ## the same, and tag the commit; refuses while the metadata or the changelog lacks something
	@$(PYTHON_BIN) scripts/release.py --tag

test-sdist: wheel ## run tests from the unpacked source distribution; TESTS=tests/include
	@rm -rf .cache/sdist && mkdir -p .cache/sdist
	@tar -xzf dist/*.tar.gz -C .cache/sdist --strip-components 1
	@cd .cache/sdist && PYTHONPATH=include:plugins:spark_apps $(CURDIR)/$(PYTHON_BIN) -m pytest $(or $(TESTS),tests/include tests/expectations)

test-versions: setup ## try the wheel with the lowest and the newest versions that its ranges allow; RESOLUTION=highest tries only these
	@scripts/versions.sh $(RESOLUTION)

coverage: setup ## measure which lines the tests without Airflow's processes reach; TESTS=tests/include
	@$(PYTHON_BIN) -m pytest --cov --cov-report term $(WORKERS) $(or $(TESTS),tests/include tests/plugins tests/spark_apps tests/dags)

benchmark: setup ## measure what a run costs, next to yardsticks; PART=decide measures only that part
	@$(PYTHON_BIN) -m lab.benchmarks $(PART)

experiments: setup ## repeat the published comparison of shedders in the simulated cluster; NAME="jitter cold_start" runs only these, SEEDS=2 uses fewer seeds; PAGE=1 renews docs/evidence.md, DRAW=1 only draws it
	@$(PYTHON_BIN) -m lab.experiments $(NAME) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(PAGE),--page) $(if $(DRAW),--draw)

families: setup ## compare strategies over families of sustained load; NAME="bursts scaling" runs only these, SEEDS=2 uses fewer seeds; PAGE=1 renews docs/evidence.md
	@$(PYTHON_BIN) -m lab.families $(NAME) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(PAGE),--page)

clean: ## remove everything generated, including the environment
	@rm -rf .venv .run .cache .benchmarks dist build .coverage* .pytest_cache .mypy_cache .ruff_cache
