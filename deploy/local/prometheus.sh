#!/usr/bin/env bash
# Puts a Prometheus server and promtool for the tests under BIN, without installing it: prometheus.sh BIN
# Those on the PATH if they are there; else those of Debian's package, which apt checks by its signature.
set -euo pipefail
bin=$(realpath -m "$1")
[ ! -x "$bin/prometheus" ] || [ ! -x "$bin/promtool" ] || exit 0
mkdir -p "$bin"
if server=$(command -v prometheus) && tool=$(command -v promtool); then
  ln -sf "$server" "$bin/prometheus"
  ln -sf "$tool" "$bin/promtool"
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
install unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$bin"
