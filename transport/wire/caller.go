package wire

import "strings"

// CertificateCredential begins the credential of a caller with a certificate.
const CertificateCredential = "certificate "

// Certified reports whether the caller was identified by a certificate.
func (c *Caller) Certified() bool {
	return strings.HasPrefix(c.GetCredential(), CertificateCredential)
}
