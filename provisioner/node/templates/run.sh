#!/bin/bash
# The workload; with words, the checkpoint hook where the workload runs: in its container, or in one like it once that is over.
# Secrets are read at each start into memory, and into no file that outlives the machine's power.
set -euo pipefail
R=${GPUPROV_NODE_ROOT:-}
set -a; . "$R/etc/gpuprov/run.env"; set +a
# if image
if [ $# -gt 0 ] && [ -n "$IMAGE" ] && docker exec gpuprov-workload true 2>/dev/null; then
  exec docker exec gpuprov-workload "$@"
fi
# end
umask 077
mkdir -p "$R/run/gpuprov"
E="$R/run/gpuprov/env"
cp "$R/etc/gpuprov/workload.env" "$E"
while read -r name store key; do
  [ -n "$name" ] || continue
  case "$store" in
    aws-secretsmanager) value=$(aws secretsmanager get-secret-value --secret-id "$key" --query SecretString --output text) ;; # if aws-secretsmanager
    gcp-secretmanager) value=$(gcloud secrets versions access latest --secret "$key") ;; # if gcp-secretmanager
  esac
  printf '%s=%s\n' "$name" "$value" >> "$E"
done < "$R/etc/gpuprov/secrets"
if [ -n "$RESUME" ] && [ -n "$(ls -I lost+found "$R/checkpoints")" ]; then
  echo GPUPROV_RESUME=/checkpoints >> "$E"
fi
mapfile -d '' -t argv < "$R/etc/gpuprov/argv"
# if host
if [ -z "$IMAGE" ]; then
  [ $# = 0 ] || argv=("$@")
  while IFS= read -r line; do export "${line?}"; done < "$E"
  exec "${argv[@]}"
fi
# end
# if image
[ $# = 0 ] || { ENTRY=$1; argv=("${@:2}"); }
docker rm -f gpuprov-workload >/dev/null 2>&1 || true
exec docker run --rm --name gpuprov-workload --gpus all --network host --ipc host --ulimit memlock=-1 \
  --env-file "$E" -e HF_HOME=/scratch/hf -v /data:/data -v /checkpoints:/checkpoints -v /scratch:/scratch \
  ${ENTRY:+--entrypoint "$ENTRY"} "$IMAGE" "${argv[@]}"
# end
