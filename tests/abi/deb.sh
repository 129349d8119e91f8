#!/bin/bash
# deb.sh BUILD VERSION: cpack makes a package that holds everything and depends on what the binaries need.
set -euo pipefail
build=$1 version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$build"
cpack -G DEB -B "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
deb=$(ls "$work"/*.deb)
[ "$(basename "$deb")" = "tamaki_${version}_$(dpkg --print-architecture).deb" ] || { echo "name: $deb"; exit 1; }
dpkg-deb --contents "$deb" | awk '{print $6}' >"$work/contents"
dpkg-deb --field "$deb" >"$work/fields"
need() { grep -qE "$2" "$1" || { echo "missing: $2, in:"; cat "$1"; exit 1; }; }
need "$work/contents" '^\./usr/lib/([^/]*/)?libtamaki\.so$'
need "$work/contents" "^\./usr/lib/([^/]*/)?libtamaki\.so\.$version\$"
need "$work/contents" '^\./usr/include/tamaki/tamaki\.h$'
need "$work/contents" '^\./usr/include/tamaki/tamaki\.hpp$'
need "$work/contents" '^\./usr/bin/tamaki$'
need "$work/contents" '/pkgconfig/tamaki\.pc$'
need "$work/contents" '/cmake/Tamaki/TamakiConfig\.cmake$'
need "$work/contents" '/cmake/Tamaki/TamakiConfigVersion\.cmake$'
need "$work/contents" '^\./usr/share/doc/tamaki/LICENSE$'
need "$work/contents" '^\./usr/share/doc/tamaki/README\.md$'
for mpi in openmpi mpich; do
  [ ! -e "libtamaki_mpi_$mpi.so" ] || need "$work/contents" "/tamaki/libtamaki_mpi_$mpi\.so\$"
done
for library in libc6 libstdc++6 libhwloc15; do need "$work/fields" "^Depends:.*${library//+/\\+}"; done
if grep -qE '^Depends:.*(libhwy|libsodium|libfmt|mpi)' "$work/fields"; then
  echo "depends on more than allowed:"; cat "$work/fields"; exit 1
fi
# What is in it works from where it is unpacked.
dpkg-deb --extract "$deb" "$work/root"
lib=$(dirname "$(find "$work/root" -name 'libtamaki.so')")
LD_LIBRARY_PATH=$lib "$work/root/usr/bin/tamaki" --version
grep -E '^(Package|Version|Depends)' "$work/fields"
