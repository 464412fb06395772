#!/bin/bash
# get-active-record.sh DIR: Ruby, what Active Record's tests need, and the sources of Rails, which have the
# tests, unpacked under DIR from the machine's own Debian sources.
#
# Nothing of the system changes: packages are unpacked, never installed, and apt works on package lists of
# its own. The newest version of Rails is taken whose source can be had.
set -euo pipefail

DIR=$(realpath "$1")
WORK=$DIR/work
mkdir -p "$DIR"/{root,sources} "$WORK"/debs "$WORK"/apt/{parts,lists/partial,cache/archives/partial}
fail() { echo "get-active-record: $*" >&2; exit 1; }

if [ -f /etc/apt/sources.list.d/debian.sources ]; then
  sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > "$WORK/apt/parts/debian.sources"
elif [ -f /etc/apt/sources.list ]; then
  sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list > "$WORK/apt/parts/debian.list"
else
  fail "no Debian package source is configured in /etc/apt"
fi
cat > "$WORK/apt/apt.conf" <<C
APT::Sandbox::User "root";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$WORK/apt/parts";
Dir::State::Lists "$WORK/apt/lists";
Dir::Cache "$WORK/apt/cache";
Acquire::Languages "none";
Acquire::Retries "3";
C
export APT_CONFIG=$WORK/apt/apt.conf
apt-get -qq update || fail "apt-get update failed; is the package mirror reachable?"

cd "$WORK"
VERSION=
for v in $(apt-cache madison ruby-activerecord | awk '$3 ~ /^2:6\.1\./ {print $3}' | uniq); do
  if apt-get -qq source --download-only "rails=$v" 2> source.err; then VERSION=$v; break; fi
  echo "no source for Rails $v, trying an older one" >&2
done
[ -n "$VERSION" ] || { cat source.err >&2 || true; fail "no Rails 6.1 whose source can be downloaded"; }
tar xJf rails_*.orig.tar.xz --strip-components=1 -C "$DIR/sources"

cd debs
RUBY=(ruby-{bcrypt,builder,byebug,concurrent,i18n,minitest,mocha,mysql2,rack,rubygems,sqlite3,tzinfo,zeitwerk})
apt-get download -qq ruby3.1 libruby3.1 rubygems-integration "${RUBY[@]}" \
  libyaml-0-2 libsqlite3-0 libgmp10 libffi8 libreadline8
for deb in *.deb; do dpkg-deb -x "$deb" "$DIR/root"; done
cd /
rm -rf "$WORK"
