// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Path returns the path of the model's file in a state directory.
func Path(state string) string { return filepath.Join(state, "cost.json") }

// Write writes the model into a state directory, and creates the directory if there is none. It replaces an older model
// atomically. It sets Version; it also sets Time if that is not set.
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

// Read reads the model in a state directory and checks that it is valid for a host. The error is a *FileError if the model cannot be used: it is
// damaged, or it was measured by another version, on another host or under another kernel. The error is fs.ErrNotExist if there is no model.
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

// FileError is the reason why the model in a file cannot be used.
type FileError struct{ File, Cause string }

func (e *FileError) Error() string { return fmt.Sprintf("cost model %s: %s", e.File, e.Cause) }

// Hint returns the command that writes a new model.
func (e *FileError) Hint() string { return "run `floodwall-lab bench --calibrate`" }

// differs returns a text about the first difference between two hosts, or "" if there is none.
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

// flaw returns a text about the first missing or impossible figure of a model, or "" if there is none.
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
