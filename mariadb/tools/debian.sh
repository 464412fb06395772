#!/bin/bash
# debian.sh: functions for scripts that fetch packages and sources from the machine's own Debian sources, and
# install nothing.
fail() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }

# own_apt DIR: from here on apt works on package lists in DIR, for binary and source packages.
own_apt() {
  local dir=$1
  mkdir -p "$dir"/{parts,lists/partial,cache/archives/partial}
  if [ -f /etc/apt/sources.list.d/debian.sources ]; then
    sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > "$dir/parts/debian.sources"
  elif [ -f /etc/apt/sources.list ]; then
    sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list > "$dir/parts/debian.list"
  else
    fail "no Debian package source is configured in /etc/apt"
  fi
  cat > "$dir/apt.conf" <<END
APT::Sandbox::User "root";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$dir/parts";
Dir::State::Lists "$dir/lists";
Dir::Cache "$dir/cache";
Acquire::Languages "none";
Acquire::Retries "3";
END
  export APT_CONFIG=$dir/apt.conf
  apt-get -qq update || fail "apt-get update failed; is the package mirror reachable?"
}

# newest_source PACKAGE VERSION...: downloads the first of these sources that can be had, whose version is in
# VERSION then. Of some versions only the binaries are there.
newest_source() {
  local package=$1 version said
  shift
  for version; do
    if said=$(apt-get -qq source --download-only "$package=$version" 2>&1); then VERSION=$version; return; fi
    echo "no source for $package $version, trying an older one" >&2
  done
  echo "${said:-}" >&2
  return 1
}
