#!/usr/bin/env bash
# Fetches the Go modules of the programs, or says in one line that they cannot be reached: modules.sh GO
set -uo pipefail
cd "$(dirname "$0")/../../plugin_shim"
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
if "$1" list -deps ./cmd/... 2> >(tee "$errors" | awk '/^go: downloading/ && ++n % 50 == 0 { printf "  %d modules fetched\n", n; fflush() }' >&2) >/dev/null; then
  exit 0
fi
cause=$(grep -v '^go: downloading' "$errors" | head -n 1)
echo "Go modules cannot be reached (${cause:-unknown}): set GOPROXY to a module proxy that this machine can reach, and try again" >&2
exit 1
