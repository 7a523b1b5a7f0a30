package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Read reads a report from a file that WriteJSON wrote, or from a directory that Save did.
func Read(path string) (*Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, &notReportError{path, err}
	}
	if r.Time.IsZero() || len(r.Experiments) == 0 {
		return nil, &notReportError{path, fmt.Errorf("no experiment is in it")}
	}
	return r, nil
}

// notReportError is a file that is something else.
type notReportError struct {
	path string
	err  error
}

func (e *notReportError) Error() string { return fmt.Sprintf("report %s: %v", e.path, e.err) }

// Hint is what to name instead.
func (e *notReportError) Hint() string {
	return "`floodwall-lab bench` says where its results are: name that directory, or the report.json in it"
}
