#!/bin/bash
# Brings the machine from its first start, and after each restart, to the point where the workload can run.
set -Eeuo pipefail
R=${GPUPROV_NODE_ROOT:-}
say() { printf '{"gpuprov": 1, "state": "boot", "why": "%s"}\n' "$*" | tee -a "$R/dev/ttyS0" >/dev/null 2>&1 || true; }
trap 'say "failed at line $LINENO: $BASH_COMMAND"' ERR
set -a; . "$R/etc/gpuprov/run.env"; set +a
mkdir -p "$R"/{data,checkpoints,scratch}

disks() { # of a kind: persistent volumes, or local ones
  for d in "$R"/sys/block/{nvme,sd,xvd}*; do
    k=kept
    grep -qs "Instance Storage" "$d/device/model" && k=local
    [ -e "$d" ] && [ $k = $1 ] && basename "$d"
  done
  return 0
}
blank() { # 2: read, and neither a file system nor a partition table found; 8 would be several of them
  blkid -p "/dev/$1" >/dev/null 2>&1
  [ $? = 2 ]
}
# Name, bytes: found by its label; the first blank disk of its size is formatted, once, and not before all disks are there: the one
# that a late one is taken for would be made in its place.
volume() {
  for _ in $(seq "${GPUPROV_WAIT:-150}"); do
    blkid -L "gpuprov-$1" >/dev/null && break
    [ $(disks kept | wc -l) -gt $(wc -w <<<$VOLUMES) ] && for d in $(disks kept); do # more: the root disk is one of them
      if [ "$(blockdev --getsize64 "/dev/$d")" = $2 ] && blank "$d"; then
        say "formats $d as $1"
        mkfs.ext4 -q -L "gpuprov-$1" "/dev/$d"
        break 2
      fi
    done
    sleep "${GPUPROV_NAP:-2}"
  done
  blkid -L "gpuprov-$1" >/dev/null || { say "volume $1 is not there"; return 1; }
  grep -q "LABEL=gpuprov-$1 " "$R/etc/fstab" || echo "LABEL=gpuprov-$1 /$1 ext4 nofail,noatime 0 2" >> "$R/etc/fstab"
  mountpoint -q "$R/$1" || mount "LABEL=gpuprov-$1" "$R/$1"
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
    s3://*) aws s3 sync --only-show-errors "$1" "$2" ;; # if s3
    gs://*) gcloud storage rsync --recursive --checksums-only "$1" "$2" ;; # if gs
    hf://*) r=${1#hf://}; HF_HOME="$R/scratch/hf" hf download "${r%%@*}" --revision "$([ "$r" = "${r#*@}" ] && echo main || echo "${r#*@}")" --local-dir "$2" >/dev/null ;; # if hf
  esac
}
if [ -n "$DATA" ]; then fetch "$DATA" "$R/data/$(basename "$DATA")"; fi
if [ -n "$SOURCE" ]; then fetch "$SOURCE" "$R/scratch/model"; fi
for a in $ADAPTERS; do fetch "${a#*=}" "$R/scratch/adapters/${a%%=*}"; done
# if image
# Signed packages; a cut half-way is taken up again. Others hold the lock of a machine that has just started.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=900 "$@" >/dev/null; }
get() {
  say "installs $*"
  if [ $P = = ]; then dpkg --configure -a >/dev/null; apt update; apt install -y "$@"; else dnf -qy install "$@" >/dev/null; fi
}
toolkit() { # in the pinned version, from a repository whose key has the pinned fingerprint
  local k="$R/etc/gpuprov/nvidia.asc" u=https://nvidia.github.io/libnvidia-container
  command -v gpg >/dev/null || get gnupg
  curl -fsSL --retry 5 -o "$k" $u/gpgkey
  [ "$(gpg --homedir "$R/etc/gpuprov" --show-keys --with-colons "$k" 2>/dev/null | awk -F: '$1=="pub"{p=1} p&&$1=="fpr"{print $10;p=0}')" = "$TOOLKIT_KEY" ] || { say "the key of $u is not the pinned one"; return 1; }
  if [ $P = = ]; then echo "deb [signed-by=$k] $u/stable/deb/\$(ARCH) /" > "$R/etc/apt/sources.list.d/gpuprov.list"
  else printf '%s\n' "[gpuprov]" name=gpuprov "baseurl=$u/stable/rpm/\$basearch" repo_gpgcheck=1 gpgcheck=0 "gpgkey=file://$k" > "$R/etc/yum.repos.d/gpuprov.repo"; fi
  get {nvidia-container-toolkit{,-base},libnvidia-container{-tools,1}}"$P$TOOLKIT"
}
if [ -n "$IMAGE" ]; then
  # What stands before a version tells the kind of packages.
  P==; command -v apt-get >/dev/null || P=-
  docker --version >/dev/null 2>&1 || if [ $P = = ]; then get docker.io; else get docker; fi
  docker info >/dev/null 2>&1 || systemctl enable --now docker
  nvidia-ctk --version >/dev/null 2>&1 || toolkit
  docker info 2>/dev/null | grep -q nvidia || { nvidia-ctk runtime configure --runtime=docker >/dev/null; systemctl restart docker; }
  docker image inspect "$IMAGE" >/dev/null 2>&1 || { say "pulls $IMAGE"; docker image prune -af >/dev/null; docker pull -q "$IMAGE"; }
fi
# end
nvidia-smi >/dev/null || { say "the driver does not answer"; exit 1; }
# if image
if [ -n "$IMAGE" ]; then # a workload that sees no GPU would run on the CPU, or not at all; the toolkit refuses a CUDA that is too new
  w=$(docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=utility --entrypoint nvidia-smi "$IMAGE" 2>&1 | tr -c ' !#-[]-~' ' ') ||
    { say "no GPU in the container: ${w:0:600}"; exit 1; }
fi
# end
say "ready to start the workload"
