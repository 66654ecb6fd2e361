package report

import (
	"slices"
	"time"
)

// Results are the measurements of a comparison so far. The names in its JSON must not change.
type Results struct {
	Begun   time.Time `json:"begun"`
	Command string    `json:"command"` // reproduces the comparison
	Rounds  int       `json:"rounds"`  // number of complete rounds
	// Smoke marks sizes and times that only show that everything works.
	Smoke         bool              `json:"smoke"`
	WindowSeconds float64           `json:"windowSeconds"`
	WarmUpSeconds float64           `json:"warmUpSeconds"`
	Machine       Machine           `json:"machine"`
	Versions      map[string]string `json:"versions"` // by system
	// FsyncMs contains the time of a synced write of 4 KiB, before each round.
	FsyncMs []float64 `json:"fsyncMs"`
	// Figures are by system and name, one for each round in which it was measured.
	Figures  map[string]map[string][]float64 `json:"figures"`
	Failures []string                        `json:"failures"`
	// Rows are the table, created by Finish.
	Rows []Row `json:"rows"`
}

// Add adds the figures of a system from one round.
func (r *Results) Add(system string, figures map[string]float64) {
	if r.Figures == nil {
		r.Figures = map[string]map[string][]float64{}
	}
	if r.Figures[system] == nil {
		r.Figures[system] = map[string][]float64{}
	}
	for name, value := range figures {
		r.Figures[system][name] = append(r.Figures[system][name], value)
	}
}

// over returns the value of a figure over all rounds; ok is false if it was never measured.
func (r *Results) over(system, figure string, worth func([]float64) float64) (value float64, ok bool) {
	values := r.Figures[system][figure]
	if len(values) == 0 {
		return 0, false
	}
	return worth(values), true
}

// Median returns the middle value, or the mean of the two in the middle. There must be at least one value.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
