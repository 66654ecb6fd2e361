// Package store keeps backups: in a directory, or in a bucket with the API of S3. It knows their file names and which
// of them are superfluous.
package store
