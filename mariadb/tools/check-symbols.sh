#!/bin/bash
# check-symbols.sh PREFIX PLUGIN.so: what the linker cannot check for a plugin.
#
# - Every undefined symbol is in mariadbd or in a library that the plugin needs.
# - It exports the plugin declarations and the service pointers, nothing else. The server fills the
#   service pointers by dlsym: hidden ones crash at the first service call.
# - It is NODELETE: threads may still run Rust thread-local destructors after the plugin's removal.
set -euo pipefail
P=$1; SO=$2; T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
export LD_LIBRARY_PATH=$P/root/usr/lib/$(g++ -dumpmachine)
fail() { echo "check-symbols: $*" >&2; exit 1; }
syms() { nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//'; }
{ syms "$P/root/usr/sbin/mariadbd"; ldd "$SO" | grep -o '/[^ ]*\.so[^ ]*' | while read -r l; do syms "$l"; done; } | sort -u > "$T/have"
nm -D --undefined-only "$SO" | awk '$1=="U"{print $2}' | sed 's/@.*//' | sort -u > "$T/want"
comm -13 "$T/have" "$T/want" > "$T/missing"
[ ! -s "$T/missing" ] || fail "undefined, and not in the server: $(c++filt < "$T/missing")"
bad=$(syms "$SO" | grep -v -E '^_maria_|_service$|^provider_service_' || true)
[ -z "$bad" ] || fail "exported by mistake: $bad"
[ "$(syms "$SO" | grep -c '^_maria_')" -gt 0 ] || fail "no plugin declaration exported"
[ "$(syms "$SO" | grep -c '_service$')" -gt 0 ] || fail "no service pointer exported"
readelf -d "$SO" | grep -q NODELETE || fail "not linked with -z nodelete"
echo "symbols fine: $(wc -l < "$T/want") wanted, $(syms "$SO" | wc -l) exported"
