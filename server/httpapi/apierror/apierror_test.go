package apierror

import (
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestErrorOfEveryStatus verifies that each error carries its status, the status's code, and a message.
func TestErrorOfEveryStatus(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		code, known := Codes[status]
		if !known {
			code = connect.CodeInternal
		}
		for _, message := range []string{"", "because"} {
			var err *connect.Error
			if !errors.As(New(status, message), &err) {
				t.Fatalf("%v: no error of connect", status)
			}
			if err.Code() != code || Status(err) != status {
				t.Errorf("%v: %v with status %v", status, err.Code(), Status(err))
			}
			if text := err.Message(); text == "" || message != "" && text != message {
				t.Errorf("%v with message %q: %q", status, message, text)
			}
		}
	}
}

func TestErrorsWithoutStatus(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), connect.NewError(connect.CodeAborted, errors.New("x"))} {
		if got := Status(err); got != wire.Status_UNSPECIFIED {
			t.Errorf("%v: status %v", err, got)
		}
	}
}

// TestRestoredSession verifies that the detail says whether the session ended because of a restore.
func TestRestoredSession(t *testing.T) {
	err, _ := FromResult(&wire.Result{Status: wire.Status_SESSION_LOST, Restored: true}).(*connect.Error) //nolint:errorlint // not wrapped
	if err == nil || len(err.Details()) != 1 {
		t.Fatalf("%v", err)
	}
	if detail, derr := err.Details()[0].Value(); derr != nil || !detail.(*wire.ErrorDetail).GetRestored() {
		t.Errorf("%v, %v", detail, derr)
	}
}
