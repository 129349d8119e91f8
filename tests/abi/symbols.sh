#!/bin/bash
# symbols.sh LIBRARY HEADER: the library exports exactly the functions that the header declares.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | sort -u)
declared=$(grep -o '\btmk[A-Z][A-Za-z]*(' "$2" | tr -d '(' | sort -u)
strange=$(grep -v '^tmk' <<<"$exported" || true)
[ -z "$strange" ] || { echo "exported without the prefix tmk:"; echo "$strange"; exit 1; }
diff <(echo "$declared") <(echo "$exported") || { echo "declared (<) and exported (>) differ"; exit 1; }
echo "$(wc -l <<<"$exported") functions, all tmk*, all declared"
