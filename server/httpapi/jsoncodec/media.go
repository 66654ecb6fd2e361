package jsoncodec

import (
	"mime"
	"net/http"
	"strings"
)

// mediaTypes are the media types that connect's handlers accept.
var mediaTypes = map[string]bool{
	"application/json":           true,
	"application/proto":          true,
	"application/grpc":           true,
	"application/grpc+proto":     true,
	"application/grpc+json":      true,
	"application/grpc-web":       true,
	"application/grpc-web+proto": true,
	"application/grpc-web+json":  true,
}

// Supported reports whether connect's handlers accept the media type of a request. streams is set if the request or
// the response may have several messages.
func Supported(header http.Header, streams bool) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return false
	}
	return mediaTypes[kind] || streams && strings.HasPrefix(kind, "application/connect+")
}

// IsJSON reports whether a request is plain JSON.
func IsJSON(header http.Header) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
