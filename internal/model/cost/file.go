package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Path is the model's file in a state directory.
func Path(state string) string { return filepath.Join(state, "cost.json") }

// Write puts the model into a state directory, which is made when there is none. It replaces an older one at once, and
// sets Version, and Time when that is not set.
func (m *Model) Write(state string) error {
	m.Version = version
	if m.Time.IsZero() {
		m.Time = time.Now().UTC().Truncate(time.Second)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("cost model: %w", err)
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return fmt.Errorf("cost model: %w", err)
	}
	if err := safefile.Replace(Path(state), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("cost model: %w", err)
	}
	return nil
}

// Read reads the model of a state directory, for a host. The error is a *FileError when there is one that is of no use:
// damaged, or measured by another version, on another host or under another kernel. It is fs.ErrNotExist when there is none.
func Read(state string, this Host) (*Model, error) {
	text, err := os.ReadFile(Path(state))
	if err != nil {
		return nil, fmt.Errorf("cost model: %w", err)
	}
	var m Model
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, &FileError{Path(state), err.Error()}
	}
	if m.Version != version {
		return nil, &FileError{Path(state), "another version of floodwall measured it"}
	}
	if what := m.Host.differs(this); what != "" {
		return nil, &FileError{Path(state), what}
	}
	if what := m.flaw(); what != "" {
		return nil, &FileError{Path(state), what}
	}
	return &m, nil
}

// FileError says why a model is of no use.
type FileError struct{ File, Cause string }

func (e *FileError) Error() string { return fmt.Sprintf("cost model %s: %s", e.File, e.Cause) }

// Hint is the remedy.
func (e *FileError) Hint() string { return "run `floodwall-lab bench --calibrate`" }

// differs says in what hosts are not the same, "" when they are.
func (h Host) differs(this Host) string {
	for _, part := range []struct{ what, was, is string }{
		{"kernel", h.Kernel, this.Kernel},
		{"CPU", h.CPU, this.CPU},
		{"number of cores", fmt.Sprint(h.Cores), fmt.Sprint(this.Cores)},
		{"mitigations", h.Mitigations, this.Mitigations},
	} {
		if part.was != part.is {
			return fmt.Sprintf("it was measured with another %s: %s, not %s", part.what, part.was, part.is)
		}
	}
	return ""
}

// flaw says what is missing or impossible in a model, "" when nothing is.
func (m *Model) flaw() string {
	for _, stage := range []string{"xdp", "ingress", "raw", filter} {
		if m.Reach[stage] <= 0 {
			return fmt.Sprintf("the cost of reaching stage %s is missing", stage)
		}
	}
	for _, at := range []string{"nftables/ingress", "nftables/raw", "nftables/filter"} {
		if _, ok := m.Work[at]; !ok {
			return fmt.Sprintf("the work of %s is missing", at)
		}
	}
	figures := []float64{m.Conntrack, m.Route}
	for _, w := range m.Work {
		figures = append(figures, w.Hook, w.Rule, w.Set, w.Limit, w.Local)
	}
	for _, ns := range figures {
		if ns < 0 {
			return fmt.Sprintf("it has a negative cost, %g ns", ns)
		}
	}
	return ""
}
