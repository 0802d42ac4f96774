#!/bin/sh
# Builds an RPM package around a binary, with rpmbuild:
#   packaging/build-rpm.sh BINARY DIRECTORY
# Prints the path of the package. VERSION, REVISION and SOURCE_DATE_EPOCH as for build-deb.sh.
set -eu
binary=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
install_options=ZSHDIR=share/zsh/site-functions
. packaging/package.sh

# RPM writes a version without `-`; `~` sorts before the release, as SemVer's pre-releases do.
rpmbuild -bb --quiet \
    --define "_topdir $work/rpm" --define "_rpmdir $work/out" \
    --define "cronlatch_version $(echo "$version" | tr - '~')" \
    --define "cronlatch_release $revision" \
    --define "cronlatch_root $root" \
    --define 'use_source_date_epoch_as_buildtime 1' \
    --define 'clamp_mtime_to_source_date_epoch 1' \
    --define '_buildhost localhost' \
    packaging/rpm/cronlatch.spec >&2
for package in "$work"/out/*/*.rpm; do
    cp "$package" "$out/"
    echo "$out/$(basename "$package")"
done
