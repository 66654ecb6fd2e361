package attacker

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
)

// The parts of HTTP/2 that an attacker needs (RFC 9113).
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameData, frameHeaders, frameSettings, framePing, frameWindow = 0x0, 0x1, 0x4, 0x6, 0x8

	flagAck, flagEndStream, flagEndHeaders = 0x1, 0x1, 0x4

	settingInitialWindow = 0x4

	frameHead = 9
	// maxStreams is the node's limit for concurrent streams on a connection.
	maxStreams = 250
)

// http2 is a connection that controls how much of each answer it accepts.
type http2 struct {
	a    *attack
	tcp  *net.TCPConn
	conn net.Conn
	r    *bufio.Reader

	mu   sync.Mutex // orders writes
	w    *bufio.Writer
	next uint32 // ID of the next stream
}

// http2 opens a connection to the leader whose streams may each receive window bytes.
func (a *attack) http2(ctx context.Context, buffer int, window uint32) (*http2, error) {
	tcp, err := a.dial(ctx, "http", a.leader().HTTP, buffer)
	if err != nil {
		return nil, err
	}
	h := &http2{a: a, tcp: tcp, conn: tcp, next: 1}
	if a.tls != nil {
		config := a.tls.Clone()
		config.ServerName, config.NextProtos = "127.0.0.1", []string{"h2"}
		h.conn = tls.Client(tcp, config)
	}
	h.r, h.w = bufio.NewReaderSize(h.conn, 16<<10), bufio.NewWriterSize(h.conn, 32<<10)
	setting := binary.BigEndian.AppendUint32([]byte{0, settingInitialWindow}, window)
	if _, err := h.w.WriteString(preface); err != nil {
		a.drop(tcp)
		return nil, err
	}
	if err := h.frame(frameSettings, 0, 0, setting); err != nil {
		a.drop(tcp)
		return nil, err
	}
	return h, nil
}

func (h *http2) close() { h.a.drop(h.tcp) }

// frame writes one frame and flushes.
func (h *http2) frame(kind, flags byte, stream uint32, payload []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.put(kind, flags, stream, payload), h.w.Flush())
}

func (h *http2) put(kind, flags byte, stream uint32, payload []byte) error {
	n := len(payload)
	head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	if _, err := h.w.Write(head); err != nil {
		return err
	}
	_, err := h.w.Write(payload)
	h.a.bytesSent.Add(int64(n))
	return err
}

// post sends a request on a new stream: the headers, which announce length bytes, and the body. The stream is
// ended if the body is complete.
func (h *http2) post(path, contentType string, body []byte, length int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	stream := h.next
	h.next += 2
	headers := literal(nil, ":method", "POST")
	headers = literal(headers, ":scheme", "http")
	headers = literal(headers, ":path", path)
	headers = literal(headers, ":authority", "node")
	headers = literal(headers, "content-type", contentType)
	if length >= 0 {
		headers = literal(headers, "content-length", strconv.Itoa(length))
	}
	if err := h.put(frameHeaders, flagEndHeaders, stream, headers); err != nil {
		return err
	}
	h.a.sent.Add(1)
	const maxData = 16 << 10
	for len(body) > maxData {
		if err := h.put(frameData, 0, stream, body[:maxData]); err != nil {
			return err
		}
		body, length = body[maxData:], length-maxData
	}
	flags := byte(0)
	if length < 0 || len(body) == length {
		flags = flagEndStream
	}
	return errors.Join(h.put(frameData, flags, stream, body), h.w.Flush())
}

// literal adds a header field without indexing and without Huffman (RFC 7541, 6.2.2).
func literal(to []byte, name, value string) []byte {
	to = append(to, 0)
	to = append(hpackLength(to, len(name)), name...)
	return append(hpackLength(to, len(value)), value...)
}

func hpackLength(to []byte, n int) []byte {
	const most = 127
	if n < most {
		return append(to, byte(n))
	}
	return binary.AppendUvarint(append(to, most), uint64(n-most))
}

// read reads frames until the connection ends, and calls seen for each that carries an answer. It answers
// pings, since the node would close the connection otherwise.
func (h *http2) read(seen func(kind byte, stream uint32, size int)) error {
	for {
		head := make([]byte, frameHead)
		if _, err := io.ReadFull(h.r, head); err != nil {
			return err
		}
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		payload := make([]byte, size)
		if _, err := io.ReadFull(h.r, payload); err != nil {
			return err
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		h.a.bytesRead.Add(int64(size))
		var err error
		switch {
		case (kind == framePing || kind == frameSettings) && flags&flagAck == 0:
			if kind == frameSettings {
				payload = nil
			}
			err = h.frame(kind, flagAck, 0, payload)
		case kind == frameData || kind == frameHeaders:
			seen(kind, stream, size)
		}
		if err != nil {
			return err
		}
	}
}

// allow lets the node send more bytes on a stream, or in total if stream is 0.
func (h *http2) allow(stream uint32, bytes uint32) error {
	return h.frame(frameWindow, 0, stream, binary.BigEndian.AppendUint32(nil, bytes))
}
