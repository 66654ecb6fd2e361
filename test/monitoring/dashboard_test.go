package monitoring_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	Title         string  `json:"title"`
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Name string `json:"name"`
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID      string `json:"refId"`
		Expr       string `json:"expr"`
		Datasource source `json:"datasource"`
	} `json:"targets"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// chosen is the data source that the user of a dashboard chooses.
var chosen = source{"prometheus", "${datasource}"}

// kinds are the panels that every Grafana has, except for rows.
var kinds = []string{"heatmap", "stat", "table", "timeseries"}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readOps(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expressions returns all expressions, without those of variables.
func (d dashboard) expressions() (all []string) {
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all = append(all, a.Expr)
		}
	}
	return all
}

// findings returns what is wrong with the form of a dashboard.
func (d dashboard) findings() (findings []string) {
	ids := map[int]bool{}
	for i, p := range d.Panels {
		found := func(format string, args ...any) {
			findings = append(findings, fmt.Sprintf("panel %d, %q: ", p.ID, p.Title)+fmt.Sprintf(format, args...))
		}
		if ids[p.ID] || p.ID == 0 {
			found("the id is not unique")
		}
		ids[p.ID] = true
		if p.Title == "" {
			found("it has no title")
		}
		if at := p.GridPos; at.W < 1 || at.H < 1 || at.X < 0 || at.X+at.W > 24 {
			found("it is at %+v", at)
		}
		for _, other := range d.Panels[:i] {
			if p.overlaps(other) {
				found("it overlaps panel %d", other.ID)
			}
		}
		if p.Type != "row" {
			p.content(found)
		}
	}
	return findings
}

func (p panel) overlaps(other panel) bool {
	a, b := p.GridPos, other.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// content reports what is wrong with a panel that is no row.
func (p panel) content(found func(string, ...any)) {
	if !slices.Contains(kinds, p.Type) {
		found("the type %q is not one of %v", p.Type, kinds)
	}
	if !strings.HasSuffix(p.Description, ".") {
		found("the description is no sentence: %q", p.Description)
	}
	if p.FieldConfig.Defaults.Unit == "" {
		found("it has no unit")
	}
	if p.Datasource != chosen {
		found("the data source is %v", p.Datasource)
	}
	if len(p.Targets) == 0 {
		found("it has no expression")
	}
	refs := map[string]bool{}
	for _, target := range p.Targets {
		if refs[target.RefID] || target.RefID == "" {
			found("refId %q is not unique", target.RefID)
		}
		refs[target.RefID] = true
		if target.Datasource != chosen {
			found("the data source of %s is %v", target.RefID, target.Datasource)
		}
		for _, s := range append(selectors(target.Expr), selector{matchers: `job="$job"`}) {
			if !strings.HasPrefix(s.matchers, `job="$job"`) {
				found("%s{%s} does not select the job", s.metric, s.matchers)
			}
		}
	}
}

// TestDashboard checks the form of the dashboard, its rows and its variables.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	for _, finding := range d.findings() {
		t.Error(finding)
	}
	if d.Title != "Quorumlock" || d.UID != "quorumlock" || d.SchemaVersion < 39 {
		t.Errorf("%q, %q, schema %d", d.Title, d.UID, d.SchemaVersion)
	}
	var rows, variables []string
	for _, p := range d.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if want := []string{"Overview", "Latency", "Waits and queues", "Expirations", "Raft and disk", "Budgets", "Ports", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	if want := []string{"datasource", "job", "node"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %q, want %q", variables, want)
	}
	for _, expr := range d.expressions() {
		for _, found := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
			if name := found[1]; !slices.Contains(variables, name) && name != "__rate_interval" {
				t.Errorf("there is no variable %s: %s", name, expr)
			}
		}
	}
}

func TestDashboardCanFail(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(`{"panels": [
		{"id": 1, "type": "row", "title": "A", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}},
		{"id": 1, "type": "graph", "gridPos": {"x": 20, "y": 0, "w": 8, "h": 8}, "targets": [{"expr": "quorumlock_term"}]}
	]}`), &d); err != nil {
		t.Fatal(err)
	}
	// The id, the title, the place, the other panel, the type, the description, the unit, the data source, and the refId,
	// the data source and the job of the expression.
	if findings := d.findings(); len(findings) != 11 {
		t.Errorf("%d: %q", len(findings), findings)
	}
}
