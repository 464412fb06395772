#!/bin/bash
# get-clients.sh LANGUAGE DIR: unpacks client libraries below DIR, and writes a program there, `run`, which
# runs a script with them. Nothing is installed, and root is not needed. Python, Node, Perl, Go and Java
# themselves are the machine's.
set -euo pipefail
. "$(dirname "$0")/../../../../mariadb/tools/debian.sh"
cd "$2"

# debian PACKAGE...: unpacks them, so that USR has what /usr would have.
debian() {
  own_apt "$PWD/apt"
  mkdir debs
  (cd debs && apt-get download -qq "$@" && for deb in *.deb; do dpkg-deb -x "$deb" ../unpacked; done)
  rm -r apt debs
  USR=$PWD/unpacked/usr
}

case $1 in
  python)
    python3 -m venv python
    python/bin/python -m pip --quiet --disable-pip-version-check install --no-deps \
      pymemcache==4.0.0 pylibmc==1.6.3 python-binary-memcached==0.31.4 six==1.16.0 uhashring==2.3
    run="$PWD/python/bin/python -B"
    ;;
  node)
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix . memjs@1.3.2
    run="env NODE_PATH=$PWD/node_modules node"
    ;;
  perl)
    debian libcache-memcached-perl libstring-crc32-perl
    run="perl -I$USR/share/perl5 -I$(echo "$USR"/lib/*/perl5/*)"
    ;;
  go)
    command -v go > /dev/null || fail "there is no go"
    debian golang-github-bradfitz-gomemcache-dev
    run="env GO111MODULE=off GOPATH=$USR/share/gocode GOCACHE=$PWD/compiled go run"
    ;;
  php)
    debian php8.2-{cli,common,memcached,igbinary,msgpack} libmemcached11 libhashkit2 libsodium23 libargon2-1
    run="env LD_LIBRARY_PATH=$(echo "$USR"/lib/*-linux-gnu) $USR/bin/php8.2 -n"
    for extension in igbinary msgpack memcached; do
      run+=" -d extension=$(echo "$USR"/lib/php/2*/$extension.so)"
    done
    ;;
  java)
    # A program of one file is compiled when it is run.
    command -v javac > /dev/null || fail "there is no java with its compiler"
    debian libspymemcached-java
    run="java -Dfile.encoding=UTF-8 -cp $USR/share/java/spymemcached.jar"
    ;;
esac
printf '#!/bin/sh\nexec %s "$@"\n' "$run" > run
chmod +x run
