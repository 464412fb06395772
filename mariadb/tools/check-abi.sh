#!/bin/bash
# check-abi.sh PREFIX: proves that our compiler, flags and headers are those of the shipped server.
#
# The server's own example engine is built from source with the flags of its package and compared with
# the shipped ha_example.so: code and data must be the same byte for byte. No loader checks this. A
# missing -DDBUG_OFF, for one, makes THD 72 bytes larger and shifts its members without a word.
set -euo pipefail
P=$1; R=$P/root/usr; S=$P/src; T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
g++ -std=gnu++11 -g -O2 -fstack-protector-strong -Wdate-time -D_FORTIFY_SOURCE=2 -fPIC \
  --param=ssp-buffer-size=4 \
  -DNDEBUG -DDBUG_OFF -DHAVE_CONFIG_H -D_FILE_OFFSET_BITS=64 -DMYSQL_DYNAMIC_PLUGIN -fno-omit-frame-pointer \
  -I"$R/include/mariadb/server" -I"$S/include" -I"$S/sql" -I"$S/wsrep-lib/include" -I"$S/wsrep-lib/wsrep-API/v26" \
  -shared -Wl,-z,relro,-z,now "$S/storage/example/ha_example.cc" -o "$T/ours.so" \
  "$R/lib/$(g++ -dumpmachine)/libmysqlservices.a"
for section in .text .rodata .data .data.rel.ro; do
  objcopy -O binary --only-section=$section "$T/ours.so" "$T/a"
  objcopy -O binary --only-section=$section "$R/lib/mysql/plugin/ha_example.so" "$T/b"
  cmp "$T/a" "$T/b" || { echo "check-abi: section $section differs from the shipped server's" >&2; exit 1; }
done
echo "ABI equal to the shipped server's"
