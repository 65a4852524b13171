#!/bin/bash
# Makes NCCL find AWS's network plugin under every name it asks for, from wherever the installer put it.
#   plugin.sh [ROOT]    ROOT: another root folder than /, for trying it
set -euo pipefail

root=${1:-}
folder=
plugin=
for candidate in "$root"/opt/amazon/ofi-nccl/lib "$root"/opt/amazon/ofi-nccl/lib/*-linux-gnu \
  "$root"/opt/amazon/aws-ofi-nccl/lib; do
  for name in libnccl-net-ofi.so libnccl-net.so; do
    if [[ -z $plugin && -f $candidate/$name ]]; then
      folder=$candidate
      plugin=$name
    fi
  done
done
if [[ -z $plugin ]]; then
  printf 'plugin.sh: there is no NCCL plugin below %s/opt/amazon: NCCL would use TCP sockets\n' "$root" >&2
  exit 1
fi

tuner=$plugin # newer releases are one library
[[ ! -f $folder/libnccl-ofi-tuner.so ]] || tuner=libnccl-ofi-tuner.so
link() { # link TARGET NAME...: where NAME is missing or leads nowhere
  local target=$1 name
  shift
  for name in "$@"; do
    [[ -f $folder/$name ]] || ln -sfn -- "$target" "$folder/$name"
  done
}
link "$plugin" libnccl-net.so libnccl-net-ofi.so libnccl-net-aws-ofi.so
link "$tuner" libnccl-ofi-tuner.so libnccl-tuner-ofi.so libnccl-tuner-aws-ofi.so

# One fixed place for LD_LIBRARY_PATH, and the loader's own list for programs that clear it.
mkdir -p -- "$root/opt/gpt-tune" "$root/etc/ld.so.conf.d"
ln -sfn -- "${folder#"$root"}" "$root/opt/gpt-tune/nccl-plugin"
printf '%s\n' "${folder#"$root"}" /opt/amazon/efa/lib >"$root/etc/ld.so.conf.d/000-nccl-plugin.conf"
# NVIDIA's images put the folder of their own plugin, which is gone, in front of everything else.
for file in "$root/etc/environment" "$root/etc/shinit_v2"; do
  [[ ! -f $file ]] || sed -i "s|/opt/amazon/aws-ofi-nccl/lib|${folder#"$root"}|g" "$file"
done
[[ -n $root ]] || ldconfig
printf 'NCCL plugin: %s/%s\n' "${folder#"$root"}" "$plugin"
