#!/usr/bin/env bash
# Prints the path of a Go of at least version $1, nothing if there is none.
set -u
go=$(command -v go) || exit 0
have=$(GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null | sed 's/^go//')
[ -n "$have" ] && [ "$(printf '%s\n%s\n' "$1" "$have" | sort -V | head -n 1)" = "$1" ] && echo "$go"
exit 0
