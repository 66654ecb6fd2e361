package read

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// listingID names a listing in a page token, so that a token cannot be used in another listing. A token is:
//
//	token     base64url without padding of: body, CRC-32C of the body (4)
//	body      listing (1), length of the prefix (uvarint), prefix, last
//	last      the position where the page ended, in the state machine's format
//
// Clients treat tokens as opaque.
type listingID byte

const (
	locksListing    listingID = 'l'
	sessionsListing listingID = 's'
	auditListing    listingID = 'a'
	quotaListing    listingID = 'q'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pageToken returns the token of the page after last, or "" at the end of the listing.
func pageToken(listing listingID, prefix, last string) string {
	if last == "" {
		return ""
	}
	body := binary.AppendUvarint([]byte{byte(listing)}, uint64(len(prefix)))
	body = append(append(body, prefix...), last...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli)))
}

// lastOf returns the position where the page before the token's ended.
func lastOf(listing listingID, prefix, token string) (last string, refused *wire.Result) {
	if token == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(data) < 1+crc32.Size {
		return "", badToken()
	}
	body := data[:len(data)-crc32.Size]
	if binary.BigEndian.Uint32(data[len(body):]) != crc32.Checksum(body, castagnoli) || listingID(body[0]) != listing {
		return "", badToken()
	}
	length, n := binary.Uvarint(body[1:])
	rest := string(body[1+max(n, 0):])
	if n <= 0 || length > uint64(len(rest)) || rest[:length] != prefix || !follows(listing, prefix, rest[length:]) {
		return "", badToken()
	}
	return rest[length:], nil
}

// follows reports whether a page of that listing can end at last.
func follows(listing listingID, prefix, last string) bool {
	if listing == locksListing {
		return last != "" && strings.HasPrefix(last, prefix)
	}
	if listing == quotaListing {
		return last != ""
	}
	_, err := strconv.ParseUint(last, 10, 64)
	return err == nil
}

func badToken() *wire.Result {
	return failure(wire.Status_INVALID_ARGUMENT,
		"page_token is not of this listing: give the next_page_token of its last page, with the same prefix, or none to begin")
}

// outOfRange returns a refusal if the requested size is above most. 0 requests the default.
func outOfRange(field string, asked, most uint32) *wire.Result {
	if asked <= most {
		return nil
	}
	return failure(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("%s is %d: give 1 to %d, or 0 for the default", field, asked, most))
}

// orDefault returns the requested size, or the default for 0.
func orDefault(asked, standard uint32) uint32 {
	if asked == 0 {
		return standard
	}
	return asked
}

// begin checks the parameters of a paged request and returns the position to start after.
func begin(listing listingID, prefix, token string, size uint32) (last string, refused *wire.Result) {
	if refused := outOfRange("page_size", size, maxPage); refused != nil {
		return "", refused
	}
	return lastOf(listing, prefix, token)
}
