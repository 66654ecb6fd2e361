package fsm

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// documented are the real bounds. All other tests of this package may use lower limits, which are
// reached sooner.
var documented = slices.Clone(settingBounds)

// budgetSettings include reserved room, so tests do not lower them.
var budgetSettings = map[string]bool{"max_state_bytes": true, "max_session_bytes": true}

func init() {
	for i, b := range settingBounds {
		if !budgetSettings[b.name] {
			settingBounds[i].min = 1
		}
	}
	smallest := model.Smallest.ProtoReflect()
	fields := smallest.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Kind() != protoreflect.BoolKind && !budgetSettings[string(f.Name())] {
			setSetting(model.Smallest, f, 1)
		}
	}
}

func setSetting(s *wire.Settings, field protoreflect.FieldDescriptor, value uint64) {
	v := protoreflect.ValueOfUint64(value)
	if field.Kind() == protoreflect.Uint32Kind {
		v = protoreflect.ValueOfUint32(uint32(value))
	}
	s.ProtoReflect().Set(field, v)
}

// TestEverySettingIsBounded takes the settings from the schema, so that a new setting without
// bounds fails here.
func TestEverySettingIsBounded(t *testing.T) {
	lowered := slices.Clone(settingBounds)
	copy(settingBounds, documented)
	t.Cleanup(func() { copy(settingBounds, lowered) })
	if faults := CheckSettings(&wire.Settings{}); len(faults) != 0 {
		t.Errorf("a setting of 0 takes the default: %v", faults)
	}
	fields := (&wire.Settings{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.BoolKind {
			continue // both values are allowed
		}
		at := slices.IndexFunc(settingBounds, func(b settingBound) bool { return b.name == string(f.Name()) })
		if at < 0 {
			t.Errorf("%s has no bounds", f.Name())
			continue
		}
		b := settingBounds[at]
		if b.min < 2 || b.max <= b.min {
			t.Errorf("%s may be from %d to %d", b.name, b.min, b.max)
		}
		for value, good := range map[uint64]bool{b.min: true, b.max: true, b.min - 1: false, 1: false, b.max + 1: false} {
			if f.Kind() == protoreflect.Uint32Kind && value > 1<<32-1 {
				continue
			}
			s := &wire.Settings{}
			setSetting(s, f, value)
			if faults := CheckSettings(s); (len(faults) == 0) != good || !good && faults[0].Name != b.name {
				t.Errorf("%s of %d: %v", b.name, value, faults)
			}
			checkSettingRefused(t, s, good)
		}
	}
	if faults := CheckSettings(DefaultSettings()); len(faults) != 0 {
		t.Errorf("the defaults: %v", faults)
	}
}

// checkSettingRefused checks whether bootstrap and restore refuse a bad setting.
func checkSettingRefused(t *testing.T, s *wire.Settings, good bool) {
	t.Helper()
	if good {
		return
	}
	for what, r := range map[string]*wire.Result{
		"bootstrap": validBootstrap(&wire.Bootstrap{ClusterId: "c", Settings: s}),
		"restore":   New(Level).CheckRestore(&wire.RestoreBackup{Lineage: "l", Reason: "r", Settings: s}),
	} {
		if r.GetStatus() != wire.Status_INVALID_ARGUMENT {
			t.Errorf("%s with %v: %v", what, s, r)
		}
	}
	var fault *SettingError
	if _, err := completeSettings(s); !errors.As(err, &fault) {
		t.Errorf("%v: %v", s, err)
	}
}
