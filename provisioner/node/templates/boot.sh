#!/bin/bash
# Brings the machine from its first start, and after each restart, to the point where the workload can run.
set -euo pipefail
R=${GPUPROV_NODE_ROOT:-}
say() { printf '{"gpuprov": 1, "state": "boot", "why": "%s"}\n' "$*" | tee -a "$R/dev/ttyS0" >/dev/null 2>&1 || true; }
trap 'say "failed at line $LINENO: $BASH_COMMAND"' ERR
set -a; . "$R/etc/gpuprov/run.env"; set +a
mkdir -p "$R/data" "$R/checkpoints" "$R/scratch"

disks() { # of a kind: persistent volumes, or local ones
  local model
  for d in "$R"/sys/block/nvme* "$R"/sys/block/sd* "$R"/sys/block/xvd*; do
    [ -e "$d" ] || continue
    model=$(cat "$d/device/model" 2>/dev/null || echo "Elastic Block Store")
    case "$model" in *Instance\ Storage*) k=local ;; *) k=kept ;; esac
    [ "$k" = "$1" ] && basename "$d"
  done
  return 0
}
blank() { # no partition and no file system on it
  ! lsblk -nro TYPE "/dev/$1" | grep -q part && [ -z "$(blkid -o value -s TYPE "/dev/$1" || true)" ]
}
volume() { # name, bytes: found by its label; the first blank disk of its size is formatted, once
  local id="" d
  for _ in $(seq "${GPUPROV_WAIT:-150}"); do
    id=$(blkid -L "gpuprov-$1" || true)
    [ -n "$id" ] && break
    for d in $(disks kept); do
      if [ "$(blockdev --getsize64 "/dev/$d")" = "$2" ] && blank "$d"; then
        say "formats $d as $1"
        mkfs.ext4 -q -L "gpuprov-$1" "/dev/$d"
        id="/dev/$d"
        break 2
      fi
    done
    sleep "${GPUPROV_NAP:-2}"
  done
  [ -n "$id" ] || { say "volume $1 is not there"; return 1; }
  mountpoint -q "$R/$1" && return 0
  grep -q "LABEL=gpuprov-$1 " "$R/etc/fstab" || echo "LABEL=gpuprov-$1 /$1 ext4 nofail,noatime 0 2" >> "$R/etc/fstab"
  mount "LABEL=gpuprov-$1" "$R/$1"
  resize2fs "$id" >/dev/null 2>&1 || true
}
for v in $VOLUMES; do volume "${v%%=*}" "${v#*=}"; done
if ! mountpoint -q "$R/scratch"; then
  for d in $(disks local); do # its content is lost with each stop
    blank "$d" && mkfs.ext4 -q -E nodiscard "/dev/$d"
    mount "/dev/$d" "$R/scratch"
    break
  done
fi
fetch() { # from, to: only what is missing; the tools check what they copy
  say "fetches $1"
  case "$1" in
    s3://*) aws s3 sync --only-show-errors "$1" "$2" ;;
    gs://*) gcloud storage rsync --recursive --checksums-only "$1" "$2" ;;
    hf://*) r=${1#hf://}; HF_HOME="$R/scratch/hf" hf download "${r%%@*}" --revision "$([ "$r" = "${r#*@}" ] && echo main || echo "${r#*@}")" --local-dir "$2" >/dev/null ;;
  esac
}
if [ -n "$DATA" ]; then fetch "$DATA" "$R/data/$(basename "$DATA")"; fi
if [ -n "$SOURCE" ]; then fetch "$SOURCE" "$R/scratch/model"; fi
for a in $ADAPTERS; do fetch "${a#*=}" "$R/scratch/adapters/${a%%=*}"; done
if [ -n "$IMAGE" ]; then
  command -v docker >/dev/null || { say "installs docker"; apt-get -qq update; apt-get -qq install -y docker.io; }
  command -v nvidia-ctk >/dev/null || { say "the image lacks nvidia-container-toolkit: use a deep learning image"; exit 1; }
  docker info 2>/dev/null | grep -q nvidia || { nvidia-ctk runtime configure --runtime=docker >/dev/null; systemctl restart docker; }
  docker image inspect "$IMAGE" >/dev/null 2>&1 || { say "pulls $IMAGE"; docker image prune -af >/dev/null; docker pull -q "$IMAGE"; }
fi
nvidia-smi >/dev/null || { say "the driver does not answer"; exit 1; }
say "ready to start the workload"
