package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestNumbersOfOptions keeps the options of the schema away from the numbers with which most schemas begin: a program that
// links two options with one number panics when it starts.
func TestNumbersOfOptions(t *testing.T) {
	const first, last = 87_341, 87_399
	options := 0
	protoregistry.GlobalTypes.RangeExtensions(func(option protoreflect.ExtensionType) bool {
		d := option.TypeDescriptor()
		if !strings.HasPrefix(d.ParentFile().Path(), "quorumlock/") {
			return true
		}
		options++
		if n := d.Number(); n < first || n > last {
			t.Errorf("%s has the number %d: take one from %d to %d", d.FullName(), n, first, last)
		}
		return true
	})
	if options < 3 {
		t.Errorf("%d options found", options)
	}
}
