package wire

import (
	"crypto/sha256"
	"fmt"
)

// Bounds of the secret of a session or a lease. The lower bound catches mistakes; randomness protects
// against guessing.
const (
	MinSecretBytes = 16
	MaxSecretBytes = 64
)

// CheckSecret returns an error if a secret is too short or too long. The error does not contain the secret.
func CheckSecret(secret []byte) error {
	if n := len(secret); n < MinSecretBytes || n > MaxSecretBytes {
		return fmt.Errorf("the secret has %d bytes: give %d to %d random ones (in base64 where this is JSON)", n, MinSecretBytes, MaxSecretBytes)
	}
	return nil
}

// HashSecret returns the SHA-256 of a secret, which is all that the cluster stores of it.
func HashSecret(secret []byte) (hash [sha256.Size]byte, err error) {
	if err := CheckSecret(secret); err != nil {
		return hash, err
	}
	return sha256.Sum256(secret), nil
}
