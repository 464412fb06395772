#!/bin/bash
# get-active-record.sh DIR: Ruby, what Active Record's tests need, and the sources of Rails, which have the
# tests, unpacked under DIR from the machine's own Debian sources.
#
# Nothing of the system changes: packages are unpacked, never installed. The newest version of Rails is taken
# whose source can be had. The functions of mariadb/tools/debian.sh stand before.
set -euo pipefail

DIR=$(realpath "$1")
WORK=$DIR/work
mkdir -p "$DIR"/{root,sources} "$WORK"/debs
own_apt "$WORK/apt"

cd "$WORK"
VERSIONS=$(apt-cache madison ruby-activerecord | awk '$3 ~ /^2:6\.1\./ {print $3}' | uniq)
newest_source rails $VERSIONS || fail "no Rails 6.1 whose source can be downloaded"
tar xJf rails_*.orig.tar.xz --strip-components=1 -C "$DIR/sources"

cd debs
RUBY=(ruby-{bcrypt,builder,byebug,concurrent,i18n,minitest,mocha,mysql2,rack,rubygems,sqlite3,tzinfo,zeitwerk})
apt-get download -qq ruby3.1 libruby3.1 rubygems-integration "${RUBY[@]}" \
  libyaml-0-2 libsqlite3-0 libgmp10 libffi8 libreadline8
for deb in *.deb; do dpkg-deb -x "$deb" "$DIR/root"; done
cd /
rm -rf "$WORK"
