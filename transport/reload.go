package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// checkEvery is the minimum interval between checks of the files, so that many handshakes do not cause as
// many system calls.
const checkEvery = time.Second

const (
	// watchInterval is how often Watch checks the files.
	watchInterval = 500 * time.Millisecond
	// expiryInterval is how often Watch has connections verified if the files do not change.
	expiryInterval = time.Minute
)

// Credentials are the current contents of TLSFiles. All methods are safe for concurrent use.
type Credentials struct {
	files  TLSFiles
	report func(error)

	mu       sync.Mutex
	held     *material
	version  int // number of changes of held since Open
	stamps   []stamp
	checked  time.Time
	reported bool // that the CRL in held is past its next update
}

// stamp identifies a state of a file without reading it. The inode is compared as well, by os.SameFile,
// because a file that is replaced by renaming may have the same time and size.
type stamp struct{ info os.FileInfo }

// Open reads the files. It returns ErrTLSFiles if they cannot be used.
func (f TLSFiles) Open(opts ...Option) (*Credentials, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%w: a certificate and its key go together, got certificate %q and key %q", ErrTLSFiles, f.Cert, f.Key)
	}
	if f.CRL != "" && f.CA == "" {
		return nil, fmt.Errorf("%w: the CRL %s needs the CA that signed it", ErrTLSFiles, f.CRL)
	}
	c := &Credentials{files: f, report: func(error) {}}
	for _, opt := range opts {
		opt(c)
	}
	stamps, err := f.stamps()
	if err != nil {
		return nil, err
	}
	held, err := f.load()
	if err != nil {
		return nil, err
	}
	c.held, c.stamps, c.checked = held, stamps, time.Now()
	return c, nil
}

// current returns the material for a handshake that starts now.
func (c *Credentials) current() *material {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= checkEvery {
		c.check(now)
	}
	return c.held
}

// check reloads changed files. The caller must hold mu.
func (c *Credentials) check(now time.Time) {
	c.checked = now
	c.reload()
	if due := c.held.crl.due(); !c.reported && !due.IsZero() && now.After(due) {
		c.reported = true
		c.report(fmt.Errorf("the CRL in use stays: %w", staleCRL(c.files.CRL, due)))
	}
}

// Expires returns when the first certificate of Cert, with its chain, expires. It returns the zero time if there is
// no certificate.
func (c *Credentials) Expires() (first time.Time) {
	for _, cert := range c.current().certificates {
		for _, der := range cert.Certificate {
			// tls.LoadX509KeyPair parses only the first one. Others that cannot be parsed are the peers' problem.
			if parsed, err := x509.ParseCertificate(der); err == nil && (first.IsZero() || parsed.NotAfter.Before(first)) {
				first = parsed.NotAfter
			}
		}
	}
	return first
}

// CheckHost returns an error unless the certificate is valid for a host, a name or an IP address.
func (c *Credentials) CheckHost(host string) error {
	for _, cert := range c.current().certificates {
		if cert.Leaf != nil {
			return cert.Leaf.VerifyHostname(host)
		}
	}
	return fmt.Errorf("%w: no certificate is named", ErrTLSFiles)
}

// Verify returns ErrRevoked or ErrExpired unless the peer of an established connection, which presented these
// certificates, could still connect now, as far as the CRL and the time are concerned. It does not read the files and
// takes about a microsecond. Call it for every connection each time that Watch asks for it, and for a new connection
// once that finds it: the CRL may have changed since its handshake.
func (c *Credentials) Verify(presented []*x509.Certificate) error {
	c.mu.Lock()
	crl := c.held.crl
	c.mu.Unlock()
	if now := time.Now(); len(presented) > 0 && now.After(presented[0].NotAfter) {
		return fmt.Errorf("%w: certificate %s was valid until %s", ErrExpired, describe(presented[0]), presented[0].NotAfter.UTC().Format(time.RFC3339))
	}
	return crl.check(presented)
}

// Watch checks the files twice a second until ctx ends. It calls verify after each change of the files, and once a
// minute because certificates expire. verify should close the connections that Verify returns an error for, so that
// they end within a second after their certificate was revoked.
func (c *Credentials) Watch(ctx context.Context, verify func()) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	seen, due := 0, time.Now().Add(expiryInterval)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		c.mu.Lock()
		c.check(now)
		version := c.version
		c.mu.Unlock()
		if version == seen && now.Before(due) {
			continue
		}
		seen, due = version, now.Add(expiryInterval)
		verify()
	}
}

// reload reads the files if they have changed. It takes the stamps first, so that a change during the
// read is detected the next time. Unusable files are read once, and again when they change. If a file is
// missing, there are no stamps, which counts as unchanged until it is back.
func (c *Credentials) reload() {
	stamps, err := c.files.stamps()
	if same(stamps, c.stamps) {
		return
	}
	var held *material
	if err == nil {
		held, err = c.files.load()
	}
	if err != nil {
		c.stamps = stamps
		c.report(fmt.Errorf("the certificates in use stay: %w", err))
		return
	}
	c.held, c.stamps, c.reported = held, stamps, false
	c.version++
	c.report(nil)
}

func same(a, b []stamp) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i].info, b[i].info
		if !os.SameFile(x, y) || !x.ModTime().Equal(y.ModTime()) || x.Size() != y.Size() {
			return false
		}
	}
	return true
}

func (f TLSFiles) stamps() ([]stamp, error) {
	stamps := []stamp{}
	for _, name := range []string{f.Cert, f.Key, f.CA, f.CRL} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTLSFiles, err)
		}
		stamps = append(stamps, stamp{info})
	}
	return stamps, nil
}

func (f TLSFiles) load() (*material, error) {
	m := &material{}
	if f.Cert != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: certificate %s with key %s: %w", ErrTLSFiles, f.Cert, f.Key, err)
		}
		m.certificates = []tls.Certificate{cert}
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTLSFiles, err)
		}
		m.pool = x509.NewCertPool()
		if !m.pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrTLSFiles, f.CA)
		}
		if f.CRL != "" {
			if m.crl, err = readCRL(f.CRL, pem); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}
