package mutants

import (
	"strings"
	"testing"
	"time"
)

const sample = `Caught-By: ./fsm ^TestScripts$/^fifo$
Caught-By: ./fsm ^TestModel$
Symptom: hang
Within: 2m

Who came last
is granted first.

--- fsm/queue.go
@@
 	one
-	two
+	three

@@
-	four
--- fsm/hold.go
@@
+	five
 	six
`

func TestDataFile(t *testing.T) {
	m, err := parse("lifo queue", sample)
	if err != nil {
		t.Fatal(err)
	}
	if m.wrong != "Who came last is granted first." || m.symptom != hung || m.within != 2*time.Minute ||
		len(m.catchers) != 2 || m.catchers[0].String() != "fsm TestScripts/fifo" {
		t.Errorf("%+v", m)
	}
	want := []change{
		{"fsm/queue.go", "\tone\n\ttwo\n\n", "\tone\n\tthree\n\n"},
		{"fsm/queue.go", "\tfour\n", ""},
		{"fsm/hold.go", "\tsix\n", "\tfive\n\tsix\n"},
	}
	if len(m.changes) != len(want) {
		t.Fatalf("%q", m.changes)
	}
	for i, c := range m.changes {
		if c != want[i] {
			t.Errorf("%q, want %q", c, want[i])
		}
	}
}

func TestDataFileIsRefused(t *testing.T) {
	for what, edit := range map[string][2]string{
		"it changes nothing":               {"\n--- ", "\n"},
		"it does not say what is wrong":    {"Who came last\nis granted first.\n", ""},
		"it does not say who":              {"Caught-By: ./fsm ^TestScripts$/^fifo$\nCaught-By: ./fsm ^TestModel$\n", ""},
		"name a package and a pattern":     {"./fsm ^TestModel$", "^TestModel$"},
		"a symptom is":                     {"hang", "noise"},
		"time: missing unit":               {"2m", "2"},
		"no such field":                    {"Within", "Without"},
		"is no file with a change":         {"fsm/queue.go\n@@", "fsm/queue.go\n"},
		"a change of nothing":              {"-	four\n", "+	four\n"},
		"begins with neither space, minus": {"-	four\n", "	four\n"},
	} {
		_, err := parse("sample", strings.ReplaceAll(sample, edit[0], edit[1]))
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q instead of %q: %v, want %q", edit[1], edit[0], err, what)
		}
	}
}

func TestChangeMustFitOnce(t *testing.T) {
	c := change{"x.go", "\ta\n", "\tb\n"}
	if got, err := c.apply("\ta\n\tc\n"); err != nil || got != "\tb\n\tc\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, src := range []string{"", "\tc\n", "\t\ta\n", "\ta\n\tc\n\ta\n"} {
		if got, err := c.apply(src); err == nil {
			t.Errorf("%q became %q", src, got)
		}
	}
}
