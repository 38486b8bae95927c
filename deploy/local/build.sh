#!/usr/bin/env bash
# Builds one program of the embedded control plane: build.sh GO FOLDER_FOR_PROGRAMS NAME
# One set of flags everywhere, also for the tests: other flags would compile all of Kubernetes again.
set -euo pipefail
go=$1 name=$3
mkdir -p "$2"
bin=$(cd "$2" && pwd)
cd "$(dirname "$0")/../../plugin_shim"

kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' go.mod)
kwok=v0.8.0
# Without the version the API server reports v0.0.0-master, which kubectl does not accept.
stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/component-base/version.gitMajor=1"
stamp+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$kubernetes") -X k8s.io/component-base/version.gitTreeState=clean"

# A line for each hundred packages shows that a long build goes on; what is no package name is an error and is shown.
progress() {
  awk -v name="$name" '
    /^[a-zA-Z0-9][^ ]*$/ { if (++n % 100 == 0) { printf "  %s: %d packages compiled\n", name, n; fflush() } next }
    /^go: downloading/ { if (++m % 50 == 0) { printf "  %s: %d modules fetched\n", name, m; fflush() } next }
    { print }' >&2
}

echo "building $name" >&2
begun=$SECONDS
if [ "$name" = kwok ]; then
  GOBIN=$bin "$go" install -v -trimpath -ldflags="-s -w" "sigs.k8s.io/kwok/cmd/kwok@$kwok" 2>&1 | progress
else
  "$go" build -v -trimpath -ldflags="-s -w $stamp" -o "$bin/$name" "./cmd/$name" 2>&1 | progress
fi
touch "$bin/$name"
echo "built $name in $((SECONDS - begun)) s" >&2
