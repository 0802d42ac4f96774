#!/bin/sh
# Builds a Debian package around a binary, with dpkg-deb alone:
#   packaging/build-deb.sh BINARY DIRECTORY
# Prints the path of the package. From the environment:
#   VERSION            the version of Cargo.toml unless set
#   REVISION           the revision of the package: 1
#   MAINTAINER         NAME <ADDRESS>
#   COMPRESSION        of dpkg-deb: xz, zstd, gzip or none
#   SOURCE_DATE_EPOCH  the time of all files: the last commit's. The same input makes the same bytes.
set -eu
binary=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
install_options=
. packaging/package.sh
full=$version-$revision
doc=$root/usr/share/doc/cronlatch

# Debian's paths and formats of documents.
mv "$doc/LICENSE" "$doc/copyright"
mv "$doc/CHANGELOG.md" "$doc/changelog"
gzip -9n "$doc/changelog"
date=$(date -R -u -d "@$SOURCE_DATE_EPOCH")
maintainer=${MAINTAINER:-The cronlatch authors <cronlatch@example.invalid>}
printf 'cronlatch (%s) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
    "$full" "$maintainer" "$date" | gzip -9n >"$doc/changelog.Debian.gz"
find "$doc" -name '*.md' -size +4k -exec gzip -9n {} +

# What the binary links to, unless it is static.
mkdir -p "$work/debian"
printf 'Source: cronlatch\n\nPackage: cronlatch\nArchitecture: any\nDescription: -\n' \
    >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps --ignore-missing-info -O root/usr/bin/cronlatch 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p') || libraries=

mkdir "$root/DEBIAN"
sed -e "s|@VERSION@|$full|" \
    -e "s|@ARCHITECTURE@|$(dpkg --print-architecture)|" \
    -e "s|@MAINTAINER@|$maintainer|" \
    -e "s|@LIBRARIES@|${libraries:+$libraries, }|" \
    -e "s|@SIZE@|$(du -sk --apparent-size "$root" | cut -f 1)|" \
    packaging/deb/control.in >"$root/DEBIAN/control"
for script in postinst prerm postrm; do
    install -m 0755 "packaging/deb/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort |
    xargs md5sum >DEBIAN/md5sums)

package=$out/cronlatch_${full}_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
