package resp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Encode returns a command as clients send it.
func Encode(args ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return []byte(b.String())
}

// Conn is a connection of a client. It has one command in flight at a time.
type Conn struct {
	net.Conn
	replies *bufio.Reader
}

// New returns a Conn on a connection.
func New(conn net.Conn) *Conn { return &Conn{conn, bufio.NewReader(conn)} }

// Do sends a command and returns its reply.
func (c *Conn) Do(args ...string) (string, error) {
	if _, err := c.Write(Encode(args...)); err != nil {
		return "", err
	}
	return Read(c.replies)
}

// Reply returns the reply to a command that was written before.
func (c *Conn) Reply() (string, error) { return Read(c.replies) }

// longest bounds an element of a reply, and most the elements of an array.
const longest, most = 16 << 20, 1 << 20

// Read returns one reply, with those in it. An error may come with a part of it.
func Read(r *bufio.Reader) (string, error) {
	var reply strings.Builder
	err := read(r, &reply)
	return reply.String(), err
}

func read(r *bufio.Reader, to *strings.Builder) error {
	line, err := r.ReadString('\n')
	to.WriteString(line)
	if err != nil {
		return err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return fmt.Errorf("%q is no reply", line)
	}
	n, wrong := strconv.Atoi(line[1 : len(line)-2])
	switch line[0] {
	case '+', '-', ':', '_':
		return nil
	case '$':
		return readBulk(r, to, n, wrong)
	case '%':
		n *= 2
	case '*', '~':
	default:
		return fmt.Errorf("%q is no reply", line)
	}
	if wrong != nil || n < -1 || n > most {
		return fmt.Errorf("%q has a wrong length", line)
	}
	for range n {
		if err := read(r, to); err != nil {
			return err
		}
	}
	return nil
}

func readBulk(r *bufio.Reader, to *strings.Builder, n int, wrong error) error {
	switch {
	case wrong != nil || n < -1 || n > longest:
		return fmt.Errorf("a string of %d bytes: %v", n, wrong)
	case n == -1:
		return nil
	}
	body := make([]byte, n+len("\r\n"))
	_, err := io.ReadFull(r, body)
	to.Write(body)
	if err == nil && string(body[n:]) != "\r\n" {
		err = fmt.Errorf("the string %q does not end", body)
	}
	return err
}
