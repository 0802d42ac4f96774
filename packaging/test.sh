#!/bin/sh
# Installs, upgrades and removes the packages in whole systems, and builds and runs the container:
#   packaging/test.sh BINARY [STATIC_BINARY]
# Needs root, and installs debootstrap, rpm, lintian and buildah with apt-get if they are missing.
# Downloads a Debian base system once, into target/packages.
set -eu
binary=$(realpath "$1")
static=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
out=$PWD/target/packages
base=$out/base
mkdir -p "$out"

say() { echo "== $*"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

missing=
for tool in debootstrap rpmbuild lintian buildah crun; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    say "installing:$missing"
    # shellcheck disable=SC2086 # a list of words
    apt-get install -q -y --no-install-recommends \
        $(echo "$missing" | sed 's/rpmbuild/rpm/') </dev/null
fi

say "building packages"
build() { sh "packaging/build-$1.sh" "$binary" "$out" | tail -n 1; }
deb_old=$(VERSION=0.0.9 COMPRESSION=gzip build deb)
deb_new=$(COMPRESSION=xz build deb)
rpm_old=$(VERSION=0.0.9 build rpm)
rpm_new=$(build rpm)
# The binary brings its own libyaml (serde_yaml), which no package of Debian may do.
lintian --fail-on error --suppress-tags embedded-library "$deb_new"

if [ ! -d "$base" ]; then
    say "downloading a base system"
    debootstrap --variant=minbase --include=systemd bookworm "$base.new" >"$out/debootstrap.log" ||
        fail "debootstrap: see $out/debootstrap.log"
    mv "$base.new" "$base"
fi

root=$(mktemp -d "$out/root.XXXXXX")
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    umount "$root/proc" 2>/dev/null || true
    rm -rf "$root"
}
trap cleanup EXIT

fresh_root() {
    umount "$root/proc" 2>/dev/null || true
    rm -rf "$root"
    cp -a "$base" "$root"
    mount -t proc proc "$root/proc"
}

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }

# What an installed package must do: $1 is the version that it must have.
works() {
    inside cronlatch --version | grep -qx "cronlatch $1" || fail "the version is not $1"
    inside cronlatch check /usr/share/doc/cronlatch/jobs.example.yaml >/dev/null
    inside getent passwd cronlatch >/dev/null || fail "there is no account cronlatch"
    [ "$(inside stat -c '%a %U %G' /etc/cronlatch)" = '750 root cronlatch' ] ||
        fail "/etc/cronlatch: $(inside stat -c '%a %U %G' /etc/cronlatch)"
    for page in cronlatch cronlatch-run; do
        gzip -t "$root/usr/share/man/man1/$page.1.gz"
    done
    inside sh -c 'systemd-analyze verify /usr/lib/systemd/system/cronlatch.service' ||
        fail "the unit is not valid"
}

# A daemon as the unit starts it: it runs a job, and ends.
runs() {
    printf 'jobs: [{ name: a, every: 1s, command: "echo said >/ran" }]\n' \
        >"$root/etc/cronlatch/jobs.yaml"
    mkdir -p "$root/var/lib/cronlatch"
    # Without a function, which would be a shell of its own that gets the signal instead.
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        STATE_DIRECTORY=/var/lib/cronlatch cronlatch run /etc/cronlatch/jobs.yaml \
        >"$out/daemon.log" 2>&1 &
    daemon=$!
    waited=0
    until [ -e "$root/ran" ]; do
        [ $((waited += 1)) -lt 600 ] && kill -0 "$daemon" || fail "no job ran: see $out/daemon.log"
        sleep 0.1
    done
    kill "$daemon"
    wait "$daemon" || fail "the daemon ended with $?: see $out/daemon.log"
    daemon=
    rm "$root/ran"
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

say "Debian package: install, upgrade, remove, purge"
fresh_root
cp "$deb_old" "$deb_new" "$root/tmp/"
inside dpkg -i "/tmp/$(basename "$deb_old")" >/dev/null
inside dpkg-query -W -f '${Version}' cronlatch | grep -qx '0.0.9-1' || fail "0.0.9 is not installed"
works "$version"
runs
inside dpkg -i "/tmp/$(basename "$deb_new")" >/dev/null
works "$version"
[ -z "$(inside dpkg --verify cronlatch)" ] || fail "$(inside dpkg --verify cronlatch)"
runs
inside dpkg --remove cronlatch >/dev/null
[ ! -e "$root/usr/bin/cronlatch" ] || fail "the program was not removed"
[ -e "$root/etc/cronlatch/jobs.yaml" ] || fail "the job list was removed"
[ -e "$root/var/lib/cronlatch" ] || fail "the store was removed without --purge"
inside dpkg --purge cronlatch >/dev/null
[ ! -e "$root/var/lib/cronlatch" ] || fail "the store was not purged"
[ -e "$root/etc/cronlatch/jobs.yaml" ] || fail "the job list was purged"

say "RPM package: install, upgrade, remove"
fresh_root
rpm --root "$root" --initdb
# The base system is Debian's: what the package requires is there, but not as RPM packages.
rpm --root "$root" --nodeps -i "$rpm_old"
works "$version"
runs
rpm --root "$root" --nodeps -U "$rpm_new"
works "$version"
runs
changed=$(rpm --root "$root" --nodeps -V cronlatch || true)
[ -z "$changed" ] || fail "rpm -V: $changed"
rpm --root "$root" -e cronlatch
[ ! -e "$root/usr/bin/cronlatch" ] || fail "the program was not removed"
[ -e "$root/etc/cronlatch/jobs.yaml" ] || fail "the job list was removed"

if [ -n "$static" ]; then
    say "static binary"
    if ldd "$static" 2>/dev/null | grep -q '=>'; then
        fail "$static is not static: $(ldd "$static")"
    fi
    fresh_root
    rm -rf "$root/lib" "$root/lib64" "$root/usr/lib"
    cp "$static" "$root/cronlatch"
    chroot "$root" /cronlatch --version
    sh packaging/docker/test.sh "$static"
fi
say "passed"
