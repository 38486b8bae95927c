#!/usr/bin/env bash
# Writes the generated code of both languages from the .proto files. `make generate` calls it; `make lint` fails when the result differs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
tools=.build/protoc-plugins
(cd plugin_shim && go build -trimpath -o "../$tools/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
files=(scheduler.proto inspect.proto)

# The virtual path gives the Python modules their final import names.
out=pyscheduler/edge/pb
"$python" -m grpc_tools.protoc -I"$out=proto/pyscheduler" --python_out=. --grpc_python_out=. --pyi_out=. "${files[@]/#/$out/v1/}"

rm -rf plugin_shim/gen && mkdir -p plugin_shim/gen
"$python" -m grpc_tools.protoc -Iproto \
  --plugin=protoc-gen-go="$tools/protoc-gen-go" --plugin=protoc-gen-go-grpc="$tools/protoc-gen-go-grpc" \
  --go_out=plugin_shim/gen --go_opt=paths=source_relative \
  --go-grpc_out=plugin_shim/gen --go-grpc_opt=paths=source_relative \
  "${files[@]/#/pyscheduler/v1/}"
