#!/bin/sh
# Makes the certificates of tests/guarded.rs: an authority, and with it those of the server and of a client.
# They are good for a thousand years.
set -eu
cd "$(dirname "$0")"
days=365000
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -keyout authority.key -out authority.pem -days $days -subj "/CN=authority" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
for name in localhost client; do
  openssl req $key -keyout $name.key -out $name.csr -subj "/CN=$name"
  printf 'subjectAltName=DNS:%s\nbasicConstraints=critical,CA:FALSE\n' $name > $name.ext
  openssl x509 -req -in $name.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days $days \
    -extfile $name.ext -out $name.pem
done
rm -f *.csr *.ext *.srl authority.key
