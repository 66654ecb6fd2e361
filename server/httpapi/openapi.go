package httpapi

import (
	_ "embed"
	"net/http"
)

// openAPIPath is the path of the OpenAPI document.
const openAPIPath = "/openapi.json"

// openAPI is the OpenAPI document of the procedures, which scripts/generate.sh generates from the schema.
//
//go:embed openapi.json
var openAPI []byte

// serveOpenAPI answers with the OpenAPI document.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}
