#!/bin/bash
# demo.sh BUILD OUT: the main job. Proves schedules, measures and checks a collective, draws schedules, and runs an MPI
# program that knows nothing of Tamaki with and without the preload. Leaves everything in OUT, with an index.html.
set -euo pipefail
build=$1 out=$2
source=$(cd "$(dirname "$0")/.." && pwd)
tamaki=$build/bin/tamaki
ranks=$(nproc)
[ "$ranks" -le 4 ] || ranks=4
[ "$ranks" -ge 2 ] || ranks=2
mkdir -p "$out"
rm -f "$out"/*.svg "$out"/*.txt "$out"/*.json "$out/index.html"
summary=$out/summary.txt
failed=0

step() { printf '\n\033[1m== %s\033[0m  (%d s)\n' "$*" "$SECONDS"; }
note() { echo "$*" >>"$summary"; }
# attempt FILE COMMAND...: output is shown and kept in FILE; a failure is noted and the demo goes on.
attempt() {
  local file=$1
  shift
  echo "\$ ${*/#$source\//}"
  if ! "$@" 2>&1 | tee "$file"; then
    failed=1
    note "FAILED: ${*/#$source\//} (see $(basename "$file"))"
    return 1
  fi
}

: >"$summary"
"$tamaki" info >"$out/info.txt" 2>&1 || true
sed -n '1,12p' "$out/info.txt"

step "Proof: schedules of every algorithm, verified rank by rank"
if attempt "$out/verify.txt" "$tamaki" verify --ranks 1..16; then
  note "proved:   $(tail -n 1 "$out/verify.txt")"
fi

step "Measurement: allreduce of f32 over $ranks ranks, every result checked"
if attempt "$out/perf.txt" "$tamaki" perf allreduce -n "$ranks" -b 8 -e 32M -f 4 -t f32 -o sum -w 5 -i 20 --check \
    --plot "$out/perf.svg"; then
  note "measured: allreduce, 8 B to 32 MiB over $ranks ranks, every element right"
fi

step "Pictures: schedules in space and time"
for algorithm in allreduce/ring allreduce/rabenseifner allreduce/double_tree broadcast/chain alltoall/bruck; do
  attempt "$out/draw.txt" "$tamaki" draw "${algorithm%/*}" "${algorithm#*/}" -n 8 -o "$out/${algorithm/\//_}.svg" || true
done
rm -f "$out/draw.txt"
note "drawn:    $(find "$out" -name '*.svg' ! -name perf.svg | wc -l) schedules of 8 ranks"

# mpi NAME: the same program under NAME's mpirun, plainly and with the preload in front; a table of both.
mpi() {
  local name=$1 preload=$build/libtamaki_mpi_$1.so program=$build/mpi_sums_$1 plain with
  command -v "mpicc.$name" >/dev/null && command -v "mpirun.$name" >/dev/null && [ -e "$preload" ] || {
    note "MPI:      $name is not there, left out"
    return 0
  }
  step "An MPI program under $name, unchanged: plain, then with LD_PRELOAD"
  [ "$program" -nt "$source/examples/mpi_sums.c" ] || "mpicc.$name" -O2 -std=c99 "$source/examples/mpi_sums.c" -o "$program"
  plain=$out/mpi_${name}_plain.txt with=$out/mpi_${name}_tamaki.txt
  local launch=("mpirun.$name" -n 2) load=(-genv LD_PRELOAD "$preload" -genv TAMAKI_MPI_STATS "$out/mpi_${name}_stats_%r.json")
  if [ "$name" = openmpi ]; then
    launch+=(--bind-to core)
    [ "$(nproc)" -ge 2 ] || launch+=(--oversubscribe --bind-to none)
    load=(-x "LD_PRELOAD=$preload" -x "TAMAKI_MPI_STATS=$out/mpi_${name}_stats_%r.json")
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  else
    launch+=(-bind-to core)
  fi
  attempt "$plain" timeout 120 "${launch[@]}" "$program" || return 0
  attempt "$with" timeout 120 "${launch[@]}" "${load[@]}" "$program" || return 0
  local verdict="all results equal"
  if ! diff <(awk '{print $1, $3}' "$plain") <(awk '{print $1, $3}' "$with") >/dev/null; then
    failed=1
    verdict="FAILED: results with and without the preload differ"
  fi
  paste "$plain" "$with" | awk -v name="$name" '
    NR == 1 {printf "%10s %14s %14s %8s   results\n", "bytes", name " us", "+ Tamaki us", "ratio"}
    $1 ~ /^[0-9]+$/ {printf "%10d %14.2f %14.2f %8.2f   %s\n", $1, $2, $5, $5 / $2, $3 == $6 ? "equal" : "DIFFERENT"}' |
    tee "$out/mpi_$name.txt"
  local ratios
  ratios=$(awk 'NR > 1 {print $4}' "$out/mpi_$name.txt" | sort -g |
    awk '{v[NR] = $1} END {printf "%s to %s, median %s", v[1], v[NR], v[int((NR + 1) / 2)]}')
  note "MPI:      $name, 2 ranks, time with Tamaki over time without: $ratios; $verdict"
}
mpi openmpi
mpi mpich

{
  echo '<!doctype html><meta charset="utf-8"><title>Tamaki: the demo</title>'
  echo '<style>body{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}pre{background:#f4f4f4;padding:1em;overflow:auto}img{max-width:100%;border:1px solid #ddd}</style>'
  escape() { sed 's/&/\&amp;/g;s/</\&lt;/g'; }
  echo "<h1>Tamaki: the demo</h1><p>$(date -u '+%F %H:%M UTC'), $(uname -m), $(nproc) cores</p><pre>$(escape <"$summary")</pre>"
  section() { # TITLE FILE
    [ -s "$2" ] || return 0
    echo "<h2>$1</h2><pre>$(escape <"$2")</pre>"
  }
  echo '<h2>Allreduce, measured</h2><img src="perf.svg" alt="bandwidth by message size">'
  section "The same in numbers" "$out/perf.txt"
  section "An Open MPI program, without and with LD_PRELOAD" "$out/mpi_openmpi.txt"
  section "An MPICH program, without and with LD_PRELOAD" "$out/mpi_mpich.txt"
  echo '<h2>Schedules</h2>'
  for svg in "$out"/*.svg; do
    file=$(basename "$svg")
    [ "$file" = perf.svg ] || echo "<h3>${file%.svg}</h3><a href=\"$file\"><img src=\"$file\" alt=\"${file%.svg}\"></a>"
  done
  section "Proof" "$out/verify.txt"
  section "This machine" "$out/info.txt"
} >"$out/index.html"

step "Summary"
cat "$summary"
echo
echo "Everything is in ${out#"$source"/}/: open index.html."
exit "$failed"
