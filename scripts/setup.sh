#!/usr/bin/env bash
# Makes the environment: a virtual environment from the hashed lock, and a Java for Spark. Does nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }
debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
install_debian() {
  say "installing $* (Debian, as root)"
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
  local name
  for name in "${PYTHON:-}" python3.12 python3.11 python3.13 python3; do
    [ -n "$name" ] && command -v "$name" >/dev/null || continue
    "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { echo "$name"; return; }
  done
  fail "Python 3.11, 3.12 or 3.13 is needed and was not found: install it, or name it with PYTHON=/path/to/python3.12"
}

java_problem() { .venv/bin/python -m pulsar_rebalancer_airflow.java 2>&1; }

find_java() {
  local problem
  problem=$(java_problem) && return
  if [ -z "${JAVA_HOME:-}" ] && debian_root && install_debian openjdk-17-jre-headless; then
    problem=$(java_problem) && return
  fi
  fail "$problem"
}

make_environment() {
  local python stamp uv_lines
  stamp=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
  [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ] && return
  python=$(find_python)
  if [ ! -x .venv/bin/pip ]; then
    say "virtual environment with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv 2>/dev/null || { debian_root && install_debian python3-venv && "$python" -m venv .venv; } ||
      fail "$python cannot make a virtual environment: install its venv module (Debian: python3-venv)"
  fi
  say "locked dependencies (about 1.2 GB; a minute or two the first time)"
  uv_lines=.venv/uv.lock
  awk '/^uv==/ {keep = 1} keep {print} keep && !/\\$/ {exit}' requirements.lock >"$uv_lines"
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$uv_lines"
  .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes requirements.lock
  .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
    --editable . --editable include/pulsar_rebalancer
  echo "$stamp" >.venv/.stamp
}

make_environment
find_java
