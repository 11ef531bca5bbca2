#!/bin/sh
# Writes the digest of each image's multi-platform index after its version, in Dockerfile, docker-compose.yaml and the
# manifests. The registry of the container engine is asked; run it again after a version has changed.
set -eu
cd "${1:-$(dirname "$0")/..}"
files="Dockerfile docker-compose.yaml deploy/kubernetes/manifests/metrics.yaml"
script=""
for image in $(sed -nE 's/^(FROM|  *image:) ([a-z/-]+:[0-9][^@ ]*).*/\2/p' $files | grep -v '^pulsar-rebalancer:' | sort -u); do
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
  if ! expr "$digest" : 'sha256:[0-9a-f]\{64\}$' >/dev/null; then
    echo "$image: the registry gave no digest: $digest" >&2
    exit 1
  fi
  script="$script;s#^(FROM|  *image:) $image(@sha256:[0-9a-f]*)?( |\$)#\\1 $image@$digest\\3#"
  echo "$image@$digest"
done
for file in $files; do
  sed -E "$script" "$file" >"$file.part"
  cat "$file.part" >"$file"
  rm "$file.part"
done
