#!/bin/bash
# get-peers.sh DIR: headers and libraries of RocksDB and WiredTiger, unpacked under DIR from the machine's
# Debian packages. Nothing of the system changes. DIR is complete (DIR/VERSION is there) or absent.
set -euo pipefail

DIR=$(realpath -m "$1")
PACKAGES=(librocksdb-dev librocksdb7.8 libwiredtiger-dev libwiredtiger0 libsnappy1v5
  libgflags2.2 liblz4-1 libzstd1 libbz2-1.0 zlib1g)
mkdir -p "$(dirname "$DIR")"
exec 9> "$DIR.lock"
flock 9
[ ! -f "$DIR/VERSION" ] || exit 0
WORK=$DIR.partial
rm -rf "$WORK" "$DIR"
mkdir -p "$WORK/debs"
cd "$WORK/debs"
fetch() { apt-get download -qq "${PACKAGES[@]}"; }
fetch || { apt-get -qq update && fetch; } || { echo "get-peers: these packages can't be had: ${PACKAGES[*]}" >&2; exit 1; }
for deb in *.deb; do dpkg-deb -x "$deb" "$WORK"; done
ls > "$WORK/VERSION"
cd /
rm -rf "$WORK/debs"
mv "$WORK" "$DIR"
