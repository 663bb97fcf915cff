#!/bin/bash
# The workload. Secrets are read at each start into memory, and into no file that outlives the machine's power.
set -euo pipefail
R=${GPUPROV_NODE_ROOT:-}
set -a; . "$R/etc/gpuprov/run.env"; set +a
umask 077
mkdir -p "$R/run/gpuprov"
E="$R/run/gpuprov/env"
cp "$R/etc/gpuprov/workload.env" "$E"
while read -r name store key; do
  [ -n "$name" ] || continue
  case "$store" in
    aws-secretsmanager) value=$(aws secretsmanager get-secret-value --secret-id "$key" --query SecretString --output text) ;;
    gcp-secretmanager) value=$(gcloud secrets versions access latest --secret "$key") ;;
  esac
  printf '%s=%s\n' "$name" "$value" >> "$E"
done < "$R/etc/gpuprov/secrets"
mapfile -d '' -t argv < "$R/etc/gpuprov/argv"
if [ -z "$IMAGE" ]; then
  while IFS= read -r line; do export "${line?}"; done < "$E"
  exec "${argv[@]}"
fi
docker rm -f gpuprov-workload >/dev/null 2>&1 || true
exec docker run --rm --name gpuprov-workload --gpus all --network host --ipc host --ulimit memlock=-1 \
  --env-file "$E" -e HF_HOME=/scratch/hf -v /data:/data -v /checkpoints:/checkpoints -v /scratch:/scratch \
  ${ENTRY:+--entrypoint "$ENTRY"} "$IMAGE" "${argv[@]}"
