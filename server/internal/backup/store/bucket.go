package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// partBytes is the memory that an upload takes. A file has at most 10,000 parts: 156 GiB.
	partBytes = 16 << 20
	// answerTimeout bounds the time until the server begins to answer a request, and idleTimeout the time for which a
	// connection may pass no byte.
	answerTimeout = time.Minute
	idleTimeout   = time.Minute
	// tries is how often a request is sent. Failed backups are repeated later.
	tries = 3
	// maxListed bounds the objects that List reads.
	maxListed = 100_000
)

var (
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// Bucket is a Store in a bucket with the API of S3.
type Bucket struct {
	client       *minio.Client
	name, prefix string
	endpoint     string
	// close closes idle connections.
	close func()
}

// OpenBucket returns the store that a URL s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION&insecure=true describes.
// It sends nothing. The credentials come from the usual environment variables, from ~/.aws/credentials, or from the
// machine's role.
func OpenBucket(text string) (*Bucket, error) {
	return openBucket(text, answerTimeout, idleTimeout)
}

func openBucket(text string, answer, idle time.Duration) (*Bucket, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("write it as s3://BUCKET/PREFIX?endpoint=HOST:PORT")
	}
	query := u.Query()
	for key := range query {
		if !slices.Contains([]string{"endpoint", "region", "insecure"}, key) {
			return nil, fmt.Errorf("it has no option %q: use endpoint, region and insecure", key)
		}
	}
	insecure := false
	if query.Has("insecure") {
		if insecure, err = strconv.ParseBool(query.Get("insecure")); err != nil {
			return nil, errors.New("insecure is true or false")
		}
	}
	prefix := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme != "s3" || u.Opaque != "" || u.Fragment != "":
		return nil, errors.New("write it as s3://BUCKET/PREFIX?endpoint=HOST:PORT")
	case u.User != nil:
		return nil, errors.New("credentials do not belong in it: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials")
	case !bucketPattern.MatchString(u.Host):
		return nil, fmt.Errorf("%q cannot be the name of a bucket", u.Host)
	case query.Has("region") && !regionPattern.MatchString(query.Get("region")):
		return nil, fmt.Errorf("%q cannot be a region", query.Get("region"))
	}
	b := &Bucket{name: u.Host, endpoint: "s3.amazonaws.com"}
	if prefix != "" {
		b.prefix = prefix + "/"
	}
	if query.Has("endpoint") {
		b.endpoint = query.Get("endpoint")
	}
	transport := newTransport(answer, idle)
	b.close = transport.CloseIdleConnections
	b.client, err = minio.New(b.endpoint, &minio.Options{
		Secure: !insecure, Region: query.Get("region"), Transport: transport, MaxRetries: tries,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: write it as HOST:PORT", b.endpoint)
	}
	return b, nil
}

// newTransport returns a transport that ends requests whose server hangs.
func newTransport(answer, idle time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &impatient{conn, idle}, nil
		},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: answer,
		IdleConnTimeout:       10 * time.Second,
		MaxIdleConns:          4,
		DisableCompression:    true,
	}
}

// impatient is a connection whose reads and writes fail if they take too long.
type impatient struct {
	net.Conn
	most time.Duration
}

func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.most)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.most)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (b *Bucket) String() string { return "s3://" + b.name + "/" + b.prefix + " at " + b.endpoint }

// Put implements Store. If check fails, Put removes the object again, unless that fails too.
func (b *Bucket) Put(ctx context.Context, file string, write func(io.Writer) error, check func(io.Reader) error) error {
	if err := b.free(ctx, file); err != nil {
		return err
	}
	if err := b.upload(ctx, file, write); err != nil {
		return err
	}
	if err := b.Read(ctx, file, check); err != nil {
		return errors.Join(err, b.Remove(ctx, file))
	}
	return nil
}

// free returns an error if there is an object of that name.
func (b *Bucket) free(ctx context.Context, file string) error {
	_, err := b.client.StatObject(ctx, b.name, b.prefix+file, minio.StatObjectOptions{})
	switch minio.ToErrorResponse(err).Code {
	case "NoSuchKey", "AccessDenied": // without the right to list, an object that is missing is denied
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s: %w", file, fs.ErrExist)
	}
	return err
}

func (b *Bucket) upload(ctx context.Context, file string, write func(io.Writer) error) error {
	from, to := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(limited{ctx: ctx, Writer: to})
		_ = to.CloseWithError(err) // always nil
		written <- err
	}()
	_, err := b.client.PutObject(ctx, b.name, b.prefix+file, from, -1, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partBytes, NumThreads: 1,
		DisableContentSha256: true, // check reads everything back
	})
	_ = from.CloseWithError(io.ErrClosedPipe) // always nil; ends write
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// Read implements Store.
func (b *Bucket) Read(ctx context.Context, file string, read func(io.Reader) error) error {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+file, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer object.Close()
	return read(limited{ctx: ctx, Reader: object})
}

// List implements Store. A tag is the object's ETag.
func (b *Bucket) List(ctx context.Context) ([]File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	var files []File
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + "quorumlock-"}) {
		if object.Err != nil {
			return nil, fmt.Errorf("list backups: %w", object.Err)
		}
		if len(files) == maxListed {
			return nil, fmt.Errorf("list backups: more than %d objects begin with %squorumlock-", maxListed, b.prefix)
		}
		if name := strings.TrimPrefix(object.Key, b.prefix); isName(name) {
			files = append(files, File{Name: name, Tag: object.ETag})
		}
	}
	return files, ctx.Err()
}

// Remove implements Store.
func (b *Bucket) Remove(ctx context.Context, file string) error {
	return b.client.RemoveObject(ctx, b.name, b.prefix+file, minio.RemoveObjectOptions{})
}
