#!/usr/bin/env bash
# Generates the Go code and the OpenAPI document of the schema with pinned tools.
#
#   generate.sh           writes them to transport/wire and server/httpapi
#   generate.sh --check   compares it with the existing code, and changes nothing
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/bin/tools
export GOBIN=$tools
go install github.com/bufbuild/buf/cmd/buf@v1.66.1
go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
export PATH=$tools:$PATH

# openapi writes the OpenAPI document.
openapi() { # FILE
	buf build -o "$tools/schema.binpb"
	(cd scripts/openapi && go run . "$tools/schema.binpb") >"$1.new"
	mv "$1.new" "$1"
}

document=server/httpapi/openapi.json
if [ "${1:-}" != --check ]; then
	buf generate
	openapi "$document"
	exit
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
buf lint
buf generate -o "$fresh"
openapi "$fresh/openapi.json"
status=0
if ! cmp -s "$fresh/openapi.json" "$document"; then
	echo "$document is not what the schema generates: run make generate" >&2
	status=1
fi
while read -r file; do
	if ! cmp -s "$fresh/$file" "$file"; then
		echo "$file is not what the schema generates: run make generate" >&2
		status=1
	fi
done < <(
	{
		(cd "$fresh" && find . -name '*.go')
		find ./transport/wire -name '*.pb.go' -o -path './transport/wire/*' -name '*.connect.go'
	} | sort -u
)
[ "$status" -ne 0 ] || echo "generated code is current"
exit "$status"
