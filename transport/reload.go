package transport

import (
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

// source holds the current contents of TLSFiles.
type source struct {
	files  TLSFiles
	report func(error)

	mu      sync.Mutex
	held    *material
	stamps  []stamp
	checked time.Time
}

// stamp identifies a state of a file without reading it. The inode is compared as well, by os.SameFile,
// because a file that is replaced by renaming may have the same time and size.
type stamp struct{ info os.FileInfo }

func (f TLSFiles) open(opts []Option) (*source, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%w: a certificate and its key go together, got certificate %q and key %q", ErrTLSFiles, f.Cert, f.Key)
	}
	s := &source{files: f, report: func(error) {}}
	for _, opt := range opts {
		opt(s)
	}
	stamps, err := f.stamps()
	if err != nil {
		return nil, err
	}
	held, err := f.load()
	if err != nil {
		return nil, err
	}
	s.held, s.stamps, s.checked = held, stamps, time.Now()
	return s, nil
}

// current returns the material for a handshake that starts now.
func (s *source) current() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.checked) >= checkEvery {
		s.checked = now
		s.reload()
	}
	return s.held
}

// reload reads the files if they have changed. It takes the stamps first, so that a change during the
// read is detected the next time. Unusable files are read once, and again when they change. If a file is
// missing, there are no stamps, which counts as unchanged until it is back.
func (s *source) reload() {
	stamps, err := s.files.stamps()
	if same(stamps, s.stamps) {
		return
	}
	var held *material
	if err == nil {
		held, err = s.files.load()
	}
	if err != nil {
		s.stamps = stamps
		s.report(fmt.Errorf("the certificates in use stay: %w", err))
		return
	}
	s.held, s.stamps = held, stamps
	s.report(nil)
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
	for _, name := range []string{f.Cert, f.Key, f.CA} {
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
	}
	return m, nil
}
