#!/bin/sh
# Unpacks Debian's headless Chromium, the libraries that the machine lacks, and two fonts, below the folder
# given. Nothing is installed, and root is not needed. With fonts of its own its pictures are the same
# everywhere.
set -eu
cd "$1"
mkdir -p cache/archives/partial lists/partial root

apt() {
  apt-get -qq -y -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Dir::Cache="$PWD/cache" "$@"
}

download() {
  apt "$@" --no-install-recommends --reinstall --download-only install chromium-headless-shell \
    fonts-dejavu-core fonts-inter
}

# The machine's lists of packages may be missing, or too old.
download || {
  apt -o Dir::State::Lists="$PWD/lists" update
  download -o Dir::State::Lists="$PWD/lists"
}
for package in cache/archives/*.deb; do
  dpkg-deb -x "$package" root
done
rm -r cache lists

cat > fonts.conf <<END
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>$PWD/root/usr/share/fonts</dir>
  <cachedir>$PWD/fonts</cachedir>
  <alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
END

# It looks for libraries there, and for the system's.
libraries=$(echo "$PWD/root/usr/lib/"*-linux-gnu)
cat > chromium <<END
#!/bin/sh
export LD_LIBRARY_PATH=$libraries:$libraries/pulseaudio FONTCONFIG_FILE=$PWD/fonts.conf
exec $PWD/root/usr/lib/chromium/chromium-headless-shell "\$@"
END
chmod +x chromium
