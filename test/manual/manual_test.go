package manual

import "testing"

// TestExamplesAreFound checks which blocks are commands and which are their output.
func TestExamplesAreFound(t *testing.T) {
	all := examples("```json\nno example\n```\n```sh\na\nb\n```\n```yaml\nc: d\n```\n```text\nA … C\n```\n```sh\ne\n```\n<!-- sh\nf\n-->\ng\n")
	if len(all) != 3 || all[0] != (example{"a\nb\n", "A … C\n", 4}) || all[1] != (example{"e\n", "", 14}) || all[2] != (example{"f\n", "", 17}) {
		t.Errorf("%+v", all)
	}
}

// TestOutputsAreCompared checks that any text may take the place of …, that whitespace does not count, and that
// everything else does.
func TestOutputsAreCompared(t *testing.T) {
	shows := example{shows: "A … C\n(d)\n"}
	for printed, same := range map[string]bool{
		"A  B\nC (d)": true, "AC(d)": true, "A b C": false, "A b C (d) e": false, "a C (d)": false, "": false,
	} {
		if shows.matches(printed) != same {
			t.Errorf("%q: %v", printed, !same)
		}
	}
	if quiet := (example{}); !quiet.matches("\n") || quiet.matches("x") {
		t.Error("an example without output")
	}
}
