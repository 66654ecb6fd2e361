package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestMutatedSnapshot changes fields of records under a correct checksum, which a fuzzer would not find. The
// restored state must satisfy every invariant and be written the same again, and no later command may fail.
func TestMutatedSnapshot(t *testing.T) {
	roll, whole := seeded(*base), 0
	bases := [][]byte{snapshotOf(t, family(t)), snapshotOf(t, twoLocks(t)), snapshotOf(t, guarded(t)), snapshotOf(t, caching(t))}
	for range scaled(15_000) {
		mutant := records(t, bases[roll(len(bases))])
		for range 1 + roll(3) {
			i := roll(len(mutant))
			mutant[i] = mutated(t, roll, mutant[i])
		}
		m, err := Restore(bytes.NewReader(sealed(t, mutant...)), Level)
		if err != nil {
			continue
		}
		whole++
		if m.Revision() < 1<<60 && m.Token() < 1<<60 { // no cluster reaches larger counters
			mustWork(t, m)
		}
	}
	if whole < scaled(15_000)/5 {
		t.Errorf("only %d were restored", whole)
	}
	fmt.Printf("fsm: %d mutated snapshots restored, and their like refused\n", whole)
}

func mustWork(t *testing.T, m *Machine) {
	t.Helper()
	first := snapshotOf(t, m)
	if !bytes.Equal(snapshotOf(t, restored(t, first)), first) {
		t.Fatal("written differently after restoring it again")
	}
	for _, cmd := range ofTheFamily(m) {
		applyOne(t, m, cmd)
		if err := m.Check(); err != nil {
			t.Fatalf("after %v: %v", cmd, err)
		}
	}
}

// mutated changes one field of a framed record.
func mutated(t *testing.T, roll dice, data []byte) []byte {
	t.Helper()
	_, n := binary.Uvarint(data)
	record := &wire.SnapshotRecord{}
	if err := proto.Unmarshal(data[n:], record); err != nil {
		t.Fatal(err)
	}
	record.ProtoReflect().Range(func(_ protoreflect.FieldDescriptor, body protoreflect.Value) bool {
		mutate(roll, body.Message())
		return false
	})
	return framed(t, record)
}

// Values that are meaningful in the mutated records.
var (
	mutantNumbers = []uint64{0, 1, 2, 3, 5, 8, 9, 10, 12, 13, 101, 103, 106, 500, 1 << 31, 1 << 62}
	mutantNames   = []string{"", "a", "b", "r", "s", "d", "e"}
)

func mutate(roll dice, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	field := fields.Get(roll(fields.Len()))
	n := mutantNumbers[roll(len(mutantNumbers))]
	switch {
	case field.IsList():
		mutateList(roll, m, field)
	case field.Kind() == protoreflect.MessageKind:
		mutate(roll, m.Mutable(field).Message())
	case field.Kind() == protoreflect.Uint64Kind:
		m.Set(field, protoreflect.ValueOfUint64(n))
	case field.Kind() == protoreflect.Uint32Kind:
		m.Set(field, protoreflect.ValueOfUint32(uint32(n)))
	case field.Kind() == protoreflect.Int64Kind:
		m.Set(field, protoreflect.ValueOfInt64(int64(n)))
	case field.Kind() == protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(!m.Get(field).Bool()))
	case field.Kind() == protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(protoreflect.EnumNumber(roll(5))))
	case field.Kind() == protoreflect.StringKind:
		m.Set(field, protoreflect.ValueOfString(mutantNames[roll(len(mutantNames))]))
	}
}

func mutateList(roll dice, m protoreflect.Message, field protoreflect.FieldDescriptor) {
	list := m.Get(field).List()
	if list.Len() == 0 {
		return
	}
	list = m.Mutable(field).List()
	switch pick := roll(3); {
	case pick == 0:
		list.Truncate(list.Len() - 1)
	case pick == 1:
		list.Append(list.Get(0))
	case field.Kind() == protoreflect.MessageKind:
		mutate(roll, list.Get(roll(list.Len())).Message())
	case field.Kind() == protoreflect.EnumKind:
		list.Set(roll(list.Len()), protoreflect.ValueOfEnum(protoreflect.EnumNumber(roll(14)-1)))
	}
}
