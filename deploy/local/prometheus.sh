#!/usr/bin/env bash
# Puts a Prometheus server for the tests under BIN, without installing it: prometheus.sh BIN
# The one on the PATH if there is one; else that of Debian's package, which apt checks by its signature.
set -euo pipefail
bin=$(realpath -m "$1")
[ ! -x "$bin/prometheus" ] || exit 0
mkdir -p "$bin"
if found=$(command -v prometheus); then
  ln -sf "$found" "$bin/prometheus"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "no prometheus on the PATH, and no apt-get to fetch it with: install Prometheus" >&2
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
download() { apt-get download -qq prometheus >log 2>&1; }
if ! download; then
  # New machines have no lists of packages.
  [ "$(id -u)" = 0 ] && apt-get update -qq >/dev/null 2>&1 || true
  download || { echo "Debian's package prometheus cannot be had ($(tail -n 1 log)): install Prometheus" >&2; exit 1; }
fi
dpkg -x ./prometheus_*.deb unpacked
install unpacked/usr/bin/prometheus "$bin/prometheus"
