#!/usr/bin/env bash
# Runs every test, goes on after a failure, and says at the end what passed, failed or was left out: test.sh GO short|long
set -uo pipefail
cd "$(dirname "$0")/../.."
go=$1 size=$2
py=.venv/bin/python
declare -a report
failed=0

stage() {
  local name=$1 begun=$SECONDS
  shift
  echo "== $name" >&2
  if "$@"; then
    report+=("passed    $name ($((SECONDS - begun)) s)")
  else
    report+=("FAILED    $name ($((SECONDS - begun)) s)")
    failed=1
  fi
}

# On a person's machine what cannot run is left out and told; where every change is judged nothing may be.
left_out() {
  report+=("LEFT OUT  $1: $2")
  [ "${CI:-}" != true ] || failed=1
}

marks="not long"
[ "$size" = long ] && marks=""

# Its tests are left out by themselves.
reason=$(deploy/local/prometheus.sh .build/bin 2>&1) || left_out "metrics from a real Prometheus" "$reason"
stage "Python: unit, property" "$py" -m pytest -q -m "$marks" -n auto --maxprocesses 8 --dist loadfile tests/unit tests/property
# Two at a time: most wait for processes of their own, which are late where all cores are taken.
stage "Python: integration" "$py" -m pytest -q -m "$marks" -n 2 --dist loadfile tests/integration
stage "lint: Python" make --no-print-directory lint-python
if reason=$(deploy/local/modules.sh "$go" 2>&1 >/dev/null | tail -n 1) && [ -z "$(grep 'cannot be reached' <<<"$reason")" ]; then
  stage "lint: Go, generated code" make --no-print-directory lint-go
  stage "Go" env -C plugin_shim "$go" test -trimpath ./gputopology/... ./cmd/kube-scheduler
  stage "build" make --no-print-directory build
  stage "end to end" "$py" -m pytest -q -m "$marks" tests/e2e
else
  left_out "Go, generated code, build, end to end" "$reason"
fi

printf '\n' >&2
printf '%s\n' "${report[@]}" >&2
exit $failed
