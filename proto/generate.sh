#!/usr/bin/env bash
# Writes the generated code of both languages from the .proto files; with --check, fails where what is checked in differs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
go=${GO:-go}
root=$PWD
out=.
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

plugins=$root/.build/protoc-plugins
mkdir -p "$plugins"
(cd plugin_shim && "$go" build -trimpath -o "$plugins/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
files=(v1/scheduler.proto v1/inspect.proto)
pb=pyscheduler/edge/pb
gen=plugin_shim/gen
mkdir -p "$out/$pb" "$out/$gen"

# The virtual path gives the Python modules their final import names.
"$python" -m grpc_tools.protoc -I"$pb=proto/pyscheduler" \
  --python_out="$out" --grpc_python_out="$out" --pyi_out="$out" "${files[@]/#/$pb/}"
"$python" -m grpc_tools.protoc -Iproto \
  --plugin=protoc-gen-go="$plugins/protoc-gen-go" --plugin=protoc-gen-go-grpc="$plugins/protoc-gen-go-grpc" \
  --go_out="$out/$gen" --go_opt=paths=source_relative --go-grpc_out="$out/$gen" --go-grpc_opt=paths=source_relative \
  "${files[@]/#/pyscheduler/}"

if [ "$out" != . ]; then
  for folder in "$pb/v1" "$gen"; do
    if ! diff -r --exclude=__init__.py --exclude=__pycache__ "$out/$folder" "$folder"; then
      echo "proto/generate.sh: $folder differs from what proto/ gives: run 'make generate' and commit the result" >&2
      exit 1
    fi
  done
fi
