#!/bin/bash
# Installs AWS's EFA software in an image: libfabric, rdma-core, Open MPI and the NCCL plugin, without a driver.
#   efa.sh VERSION FINGERPRINT
set -euo pipefail

version=$1
fingerprint=$2
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"

site=https://efa-installer.amazonaws.com
archive=aws-efa-installer-$version.tar.gz
for file in "$archive" "$archive.sig" aws-efa-installer.key; do
  curl --fail --silent --show-error --location --retry 5 --output "$file" "$site/$file"
done

# The key comes from where the archive comes from: what makes it AWS's is the fingerprint in their manual.
export GNUPGHOME=$work/keys
mkdir -m 700 -- "$GNUPGHOME"
gpg --batch --quiet --import aws-efa-installer.key
gpg --batch --status-fd 3 --verify "$archive.sig" "$archive" 3>status
if ! grep -q "^\[GNUPG:\] VALIDSIG .*$fingerprint" status; then
  printf 'efa.sh: %s is not signed with the key %s\n' "$archive" "$fingerprint" >&2
  exit 1
fi

installed() { # those of the packages that are there
  dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^[a-z]i //p'
}
# Parts of another EFA release that the base brings: the installer refuses to go over them.
mapfile -t brought < <(installed 'libnccl-ofi*' 'libfabric*-aws*' 'efa-*' 'openmpi*-aws*')
((${#brought[@]} == 0)) || dpkg --purge --force-all "${brought[@]}"
rm -rf /opt/amazon
# The base's InfiniBand libraries are older than the plugin needs; what depends on them goes with them.
mapfile -t verbs < <(installed ibverbs-utils libibverbs-dev libibverbs1 libmlx5-1)
((${#verbs[@]} == 0)) || apt-get remove -y --allow-change-held-packages "${verbs[@]}"

tar xzf "$archive"
options=(-y -g --skip-kmod --skip-limit-conf --no-verify)
# From 1.48.0 on it sees an NVIDIA image and would leave out rdma-core and install another plugin.
if [[ $(printf '%s\n' 1.48.0 "$version" | sort -V | head -n 1) == 1.48.0 ]]; then
  options+=(--disable-ngc --disable-build-ngc)
fi
apt-get update
cd aws-efa-installer
./efa_installer.sh "${options[@]}"
