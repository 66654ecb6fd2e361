package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Prefix is the path below which the console's files are served.
const Prefix = "/ui/"

//go:embed ui
var embedded embed.FS

// policy is the Content-Security-Policy: the console loads its own files and talks to its own node. It needs neither
// inline scripts nor inline styles, so markup that reached the page could do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'none'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// contentTypes are the types of files by extension. They do not depend on the machine, as package mime does.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// file is an embedded file in the two forms in which it is sent.
type file struct {
	contentType string
	etag        string
	plain       []byte
	compressed  []byte
}

// files returns the embedded files by request path. They are compressed once per process.
var files = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(embedded, "ui", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := load(name)
		all[Prefix+strings.TrimPrefix(name, "ui/")] = f
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("console: read the embedded files: %v", err)) // the binary is broken
	}
	all[Prefix] = all[Prefix+"index.html"]
	return all
})

func load(name string) (file, error) {
	plain, err := embedded.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	contentType := contentTypes[path.Ext(name)]
	if contentType == "" {
		return file{}, fmt.Errorf("%s: no content type is known for its extension", name)
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(plain); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	sum := sha256.Sum256(plain)
	return file{contentType: contentType, etag: hex.EncodeToString(sum[:]), plain: plain, compressed: compressed.Bytes()}, nil
}

// Handler serves the console's files at Prefix, and redirects there from "/" and "/ui". All other paths are 404. It
// expects GET and HEAD requests only.
func Handler() http.Handler {
	all := files()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if r.URL.Path == "/" || r.URL.Path == strings.TrimSuffix(Prefix, "/") {
			http.Redirect(w, r, Prefix, http.StatusFound)
			return
		}
		f, ok := all[r.URL.Path]
		if !ok {
			http.Error(w, "The console has no such file. It begins at "+Prefix+".", http.StatusNotFound)
			return
		}
		f.serve(w, r)
	})
}

// setHeaders sets what all responses have in common.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	body, etag := f.plain, `"`+f.etag+`"`
	if acceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		body, etag = f.compressed, `"`+f.etag+`-gzip"`
	}
	h.Set("ETag", etag)
	if matches(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the caller may be gone
	}
}

// acceptsGzip reports whether a request accepts the encoding, with a quality other than 0.
func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, parameter, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		quality, given := strings.CutPrefix(strings.ReplaceAll(parameter, " ", ""), "q=")
		value, err := strconv.ParseFloat(quality, 64)
		return !given || err == nil && value > 0
	}
	return false
}

// matches reports whether an If-None-Match header names the tag.
func matches(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
			return true
		}
	}
	return false
}
