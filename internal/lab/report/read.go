package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Read reads a report from a file that WriteJSON wrote, or from a directory that Save wrote.
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
		return nil, notReport(path, err)
	}
	if r.Time.IsZero() || len(r.Experiments) == 0 {
		return nil, notReport(path, errors.New("no experiment is in it"))
	}
	return r, nil
}

// notReport returns the error for a file that is no report.
func notReport(path string, err error) error {
	return wording.WithHint(fmt.Errorf("report %s: %w", path, err), "`floodwall-lab bench` says where its results are: name that directory, or the report.json in it")
}
