#!/bin/sh
# Writes .env from .env.example, a fresh random value for every secret; an existing .env is not changed.
set -eu
cd "${1:-$(dirname "$0")/..}"
if [ -e .env ]; then
  echo ".env is there already: remove it first if all secrets shall change" >&2
  exit 1
fi
umask 077
random_hex() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
# Airflow wants 32 bytes in URL-safe base64.
fernet_key() { head -c 32 /dev/urandom | base64 | tr '+/' '-_'; }
while IFS= read -r line; do
  case $line in
    *FERNET_KEY=) printf '%s%s\n' "$line" "$(fernet_key)" ;;
    [A-Z]*=) printf '%s%s\n' "$line" "$(random_hex)" ;;
    *) printf '%s\n' "$line" ;;
  esac
done <.env.example >.env.part
mv .env.part .env
echo ".env is written, only you can read it" >&2
