// Package jsoncodec is the JSON of the HTTP port: protojson with three changes. It emits empty fields, so that
// scripts find them. Its output is compact and deterministic, where protojson deliberately varies its
// whitespace. It rejects unknown fields, since a misspelt waitMs would otherwise silently make an acquire a try.
package jsoncodec
