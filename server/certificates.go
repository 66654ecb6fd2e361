package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/transport"
)

const (
	// expiryNotice is how long before its expiry a certificate is warned about.
	expiryNotice = 30 * 24 * time.Hour
	// expiryInterval is how often it is warned about.
	expiryInterval = 24 * time.Hour
)

// nodeCertificates are the node's own certificates.
type nodeCertificates struct {
	// client are those of the client port; nil without TLS. peer are those of the peer port, for their expiry only.
	client, peer *transport.Credentials

	log      hclog.Logger
	registry *prometheus.Registry
	gauges   []prometheus.Collector
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// openCertificates reads the certificates, exports their expiry and warns of it until close.
func openCertificates(c Config) (*nodeCertificates, error) {
	certs := &nodeCertificates{log: c.Logger, registry: c.Registry}
	if err := certs.read(c); err != nil {
		return nil, err
	}
	if err := certs.register(); err != nil {
		certs.unregister()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	certs.cancel = cancel
	if len(certs.ports()) > 0 {
		certs.running.Go(func() { certs.warnDaily(ctx) })
	}
	return certs, nil
}

// read reads the files. checkCertificates has found no fault in them, except perhaps in the revocation lists.
func (c *nodeCertificates) read(cfg Config) (err error) {
	if cfg.TLS.Cert != "" {
		if c.client, err = cfg.TLS.Open(reportReload(cfg.Logger)); err != nil {
			return fmt.Errorf("%w: --tls-crl: %w: give the list that the authority in --tls-ca signed", ErrConfig, err)
		}
	}
	if cfg.PeerTLS.Cert != "" {
		if c.peer, err = cfg.PeerTLS.Open(); err != nil {
			return fmt.Errorf("%w: --peer-tls-crl: %w: give the list that the authority in --peer-tls-ca signed", ErrConfig, err)
		}
	}
	return nil
}

// ports returns the certificates by port.
func (c *nodeCertificates) ports() map[string]*transport.Credentials {
	ports := map[string]*transport.Credentials{}
	if c.client != nil {
		ports["client"] = c.client
	}
	if c.peer != nil {
		ports["peer"] = c.peer
	}
	return ports
}

func (c *nodeCertificates) register() error {
	var errs []error
	for port, credentials := range c.ports() {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "quorumlock_certificate_expiry_seconds",
			Help:        "Time until the certificate of the client (and HTTP) or the peer port expires; negative once it has.",
			ConstLabels: prometheus.Labels{"port": port},
		}, func() float64 { return time.Until(credentials.Expires()).Seconds() })
		err := c.registry.Register(gauge)
		if err == nil {
			c.gauges = append(c.gauges, gauge)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *nodeCertificates) unregister() {
	for _, gauge := range c.gauges {
		c.registry.Unregister(gauge)
	}
}

func (c *nodeCertificates) warnDaily(ctx context.Context) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		c.warn()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// warn logs the certificates that expire soon.
func (c *nodeCertificates) warn() {
	for port, credentials := range c.ports() {
		expires := credentials.Expires()
		switch left := time.Until(expires); {
		case left < 0:
			c.log.Error("a certificate has expired, and is refused everywhere: replace its files, no restart is needed", "port", port, "expired", expires.UTC().Format(time.RFC3339))
		case left < expiryNotice:
			c.log.Warn("a certificate expires soon: replace its files, no restart is needed", "port", port, "expires", expires.UTC().Format(time.RFC3339), "days", int(left.Hours()/24))
		}
	}
}

// expires returns when the first certificate expires; the zero time if there is none.
func (c *nodeCertificates) expires() (first time.Time) {
	for _, credentials := range c.ports() {
		if at := credentials.Expires(); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

func (c *nodeCertificates) close() {
	c.cancel()
	c.running.Wait()
	c.unregister()
}
