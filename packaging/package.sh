# Common to build-deb.sh and build-rpm.sh, which read it with `.` after setting `binary` and
# `install_options`: reads the version, and installs everything below $root in a temporary directory.
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)}
revision=${REVISION:-1}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root

# shellcheck disable=SC2086 # options without blanks
make --no-print-directory --silent install DESTDIR="$root" PREFIX=/usr BINARY="$binary" $install_options
find "$root/usr/share/man" -type f -exec gzip -9n {} +
