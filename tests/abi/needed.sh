#!/bin/bash
# needed.sh LIBRARY: at load time it needs nothing beyond libc, libstdc++, libpthread and hwloc. libgcc_s and libm come
# with libstdc++, ld-linux with libc.
set -euo pipefail
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "readelf shows no NEEDED entry in $1"; exit 1; }
more=$(grep -vE '^(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libhwloc|ld-linux-.*)\.so\.[0-9]+$' <<<"$needed" || true)
[ -z "$more" ] || { echo "needs more than allowed:"; echo "$more"; exit 1; }
if grep -qE '\((RPATH|RUNPATH)\)' <<<"$(readelf -d "$1")"; then echo "has a run path"; readelf -d "$1"; exit 1; fi
echo $needed
