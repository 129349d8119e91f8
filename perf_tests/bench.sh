#!/bin/bash
# bench.sh BUILD OUT [ARGS]: the comparison with peers and bound (ARGS go to compare.py), and sweeps of every collective.
set -euo pipefail
build=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
ranks=$(nproc)
[ "$ranks" -ge 2 ] || ranks=2
mkdir -p "$out"
for collective in allreduce reduce broadcast allgather reduce_scatter gather scatter alltoall sendrecv barrier; do
  "$build/bin/tamaki" perf "$collective" -n "$ranks" -b 8 -e 64M -f 4 --check --json "$out/$collective.json" \
    --plot "$out/$collective.svg" | tee "$out/$collective.txt"
done
status=0
python3 "$here/compare.py" --build "$build" --out "$out/programs" --json "$out/compare.json" "$@" | tee "$out/compare.txt" || status=$?
[ "$status" -le 1 ] || exit "$status"
echo "results are in $out"
