#!/bin/bash
# Unpacks Debian's memcached, its tools, their libraries, and the sources of that memcached, which have its
# tests, below the folder given. Nothing is installed, and root is not needed.
set -euo pipefail
. "$(dirname "$0")/../../../mariadb/tools/debian.sh"
cd "$1"
own_apt "$PWD/apt"
mkdir debs
cd debs
apt-get download -qq memcached libmemcached-tools libmemcached11 libmemcachedutil2 libhashkit2 \
  libevent-2.1-7 libsasl2-2
for deb in *.deb; do dpkg-deb -x "$deb" ../root; done
apt-get source -qq --download-only "memcached=$(dpkg-deb --field memcached_*.deb Version)"
mkdir ../sources
tar -xf memcached_*.orig.tar.* --strip-components=1 -C ../sources
cd ..
rm -r apt debs
# Programs that look for their libraries there.
for program in memcached memccapable; do
  cat > "$program" <<END
#!/bin/sh
LD_LIBRARY_PATH=$(echo "$PWD/root/usr/lib/"*-linux-gnu) exec $PWD/root/usr/bin/$program "\$@"
END
  chmod +x "$program"
done
