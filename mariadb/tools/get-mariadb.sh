#!/bin/bash
# get-mariadb.sh [PREFIX]: one exact MariaDB 10.11 (server, clients, test runner, public and private
# headers) and sysbench, unpacked under PREFIX from the machine's own Debian sources.
#
# - Nothing of the system changes: packages are unpacked, never installed, and apt works on
#   package lists of its own.
# - A plugin fits one exact server version only, so the newest version is taken whose *source* can
#   be had too: the private headers are in no package. MARIADB_DEB_VERSION names another one.
# - PREFIX is complete or absent. The work happens beside it and is renamed at the end, and a lock
#   lets checkouts that share PREFIX wait for each other, so an interrupted run is simply redone.
# - PREFIX/VERSION names what was unpacked; `. PREFIX/env.sh` makes it usable in a shell.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

PREFIX=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/varve/mariadb}")
TRIPLET=$(g++ -dumpmachine)
mkdir -p "$(dirname "$PREFIX")"
exec 9> "$PREFIX.lock"
flock 9
for tool in apt-get apt-cache dpkg-deb realpath; do
  command -v $tool > /dev/null || fail "$tool is missing; this set-up needs a Debian 12 machine"
done

# add DIR PACKAGE...: unpacks these into DIR.
add() {
  local debs=$WORK/debs dir=$1
  shift
  mkdir -p "$debs"
  (cd "$debs" && apt-get download -qq "$@" && for deb in *.deb; do dpkg-deb -x "$deb" "$dir"; done)
}

WORK=$PREFIX.partial
if [ -f "$PREFIX/VERSION" ]; then
  VERSION=$(cat "$PREFIX/VERSION")
  # One that was made before the set had this package gets it.
  if [ ! -x "$PREFIX/root/usr/bin/mariadb-backup" ]; then
    rm -rf "$WORK"
    own_apt "$WORK/apt"
    add "$WORK/root" mariadb-backup="$VERSION"
    mv "$WORK/root/usr/bin/mariadb-backup" "$PREFIX/root/usr/bin/"
    rm -rf "$WORK"
  fi
  echo "MariaDB $VERSION is in $PREFIX"
  exit 0
fi
rm -rf "$WORK" "$PREFIX"
mkdir -p "$WORK"/{debs,root,src}
own_apt "$WORK/apt"

cd "$WORK/src"
if [ -z "${MARIADB_DEB_VERSION:-}" ]; then
  MARIADB_DEB_VERSION=$(apt-cache madison mariadb-server | awk '$3 ~ /^1:10\.11\./ {print $3}' | uniq)
fi
newest_source mariadb $MARIADB_DEB_VERSION || fail "no MariaDB 10.11 whose source can be downloaded"

UPSTREAM=${VERSION#*:}; UPSTREAM=${UPSTREAM%%-*}
tar xzf "mariadb_$UPSTREAM.orig.tar.gz" --strip-components=1 \
  "mariadb-$UPSTREAM"/{include,sql,wsrep-lib,storage/example,libservices}
cp include/probes_mysql_nodtrace.h.in include/probes_mysql_nodtrace.h
rm -f mariadb_*

add "$WORK/root" \
  {mariadb-server-core,mariadb-server,mariadb-client-core,mariadb-client,mariadb-backup,mariadb-test,mariadb-test-data,libmariadb3,libmariadb-dev,libmariadbd-dev}="$VERSION" \
  libaio1 liburing2 libpcre2-8-0 libpcre2-posix3 sysbench libluajit2-5.1-2 libluajit2-5.1-common

cat > "$WORK/env.sh" <<E
export MDB=$PREFIX LD_LIBRARY_PATH=$PREFIX/root/usr/lib/$TRIPLET
export PATH=$PREFIX/root/usr/bin:$PREFIX/root/usr/sbin:\$PATH
export LUA_PATH="$PREFIX/root/usr/share/sysbench/?.lua;;"
E
cd /
rm -rf "$WORK"/{debs,apt}
echo "$VERSION" > "$WORK/VERSION"
sync -f "$WORK"
mv "$WORK" "$PREFIX"
echo "MariaDB $VERSION is in $PREFIX"
