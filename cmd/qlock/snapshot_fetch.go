package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// SaveSnapshot reads a snapshot from a node's HTTP port, because the session protocol only carries messages
// of bounded size.
func (c cluster) SaveSnapshot(ctx context.Context, addr string, req *wire.SaveSnapshotRequest, to io.Writer) (about *wire.StaleSnapshot, err error) {
	httpClient, base, err := c.httpClient(addr)
	if err != nil {
		return nil, err
	}
	defer httpClient.CloseIdleConnections()
	operator := wireconnect.NewOperatorServiceClient(httpClient, base)
	pieces, err := operator.SaveSnapshot(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, httpError(addr, err)
	}
	defer pieces.Close()
	for pieces.Receive() {
		if described := pieces.Msg().GetStale(); described != nil {
			about = described
		}
		if _, err := to.Write(pieces.Msg().GetChunk()); err != nil {
			return nil, failf(exitInternal, "write the snapshot: %w", err)
		}
	}
	return about, httpError(addr, pieces.Err())
}

// httpClient returns an HTTP client for the port at addr, which presents the token, and the base of its URLs.
func (c cluster) httpClient(addr string) (httpClient *http.Client, base string, err error) {
	token, err := c.bearerToken(addr)
	if err != nil {
		return nil, "", err
	}
	base = "http://" + addr
	if c.cfg.TLS != nil {
		base = "https://" + addr
	}
	return &http.Client{Transport: bearer{&http.Transport{TLSClientConfig: c.cfg.TLS.Clone()}, token}}, base, nil
}

// httpError converts an error of the HTTP port to the status that it carries, as the SDK would.
func httpError(addr string, err error) error {
	var from *connect.Error
	if !errors.As(err, &from) {
		return err
	}
	for _, d := range from.Details() {
		if value, derr := d.Value(); derr == nil {
			if detail, ok := value.(*wire.ErrorDetail); ok {
				return &client.StatusError{Status: client.Status(detail.GetStatus()), Message: from.Message()}
			}
		}
	}
	if from.Code() == connect.CodeUnavailable || from.Code() == connect.CodeDeadlineExceeded {
		return &client.StatusError{Status: client.StatusUnavailable, Message: addr + ": " + from.Message()}
	}
	return fmt.Errorf("snapshot from %s: %w", addr, err)
}
