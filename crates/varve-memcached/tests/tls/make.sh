#!/bin/sh
# Makes the certificates of tests/guarded.rs: an authority, and with it those of the server and of a client.
# They are good from before they were made, as clocks may be late, for nearly a thousand years.
set -eu
cd "$(dirname "$0")"
cat > ca.conf <<END
[ca]
default_ca = all
[all]
database = ca.index
serial = ca.serial
new_certs_dir = .
default_md = sha256
policy = names
[names]
commonName = supplied
END
: > ca.index
echo 01 > ca.serial
sign() {
  openssl ca -batch -notext -config ca.conf -keyfile authority.key -in "$1.csr" -out "$1.pem" \
    -startdate 20200101000000Z -enddate 29991231235959Z -extfile "$1.ext" $2
}
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n' > authority.ext
openssl req $key -keyout authority.key -out authority.csr -subj "/CN=authority"
sign authority -selfsign
for name in localhost client; do
  openssl req $key -keyout $name.key -out $name.csr -subj "/CN=$name"
  printf 'subjectAltName=DNS:%s\nbasicConstraints=critical,CA:FALSE\n' $name > $name.ext
  sign $name "-cert authority.pem"
done
rm -f *.csr *.ext ca.* authority.key 0?.pem
