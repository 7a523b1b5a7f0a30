package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/safefile"
)

// kept is what a node remembers over restarts. It is on the disk before anything is done.
type kept struct {
	Seen        uint64     `json:"seen"`    // the last version that was ordered, for this node or not: none before it is taken
	Content     string     `json:"content"` // SHA-256 of its files
	Phase       wire.Phase `json:"phase"`
	Problem     string     `json:"problem,omitempty"`
	Tries       int        `json:"tries,omitempty"` // trials that began
	Ends        time.Time  `json:"ends,omitzero"`   // of the trial
	Runs        uint64     `json:"runs,omitempty"`  // the last version that was confirmed
	RunsContent string     `json:"runs_content,omitempty"`
}

const keptFile = "state.json"

// Dir is the directory for the versions that a key has signed. Versions grow with each key: one of another key, as after a loss, is neither
// older nor newer. What a key has signed is remembered also while another one is trusted.
func Dir(state, key string) string { return filepath.Join(state, "fleet-policies", key) }

// readKept reads what a node remembers.
func readKept(dir string) (k kept, err error) {
	file := filepath.Join(dir, keptFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return kept{}, fmt.Errorf("%s is damaged, and no version is taken, as it could be an old one: %w; remove the file to take the version that the hubs have", file, err)
	}
	return k, nil
}

// write replaces the file in one step.
func (k kept) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := safefile.Replace(filepath.Join(dir, keptFile), text, 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// sweep removes versions that are not needed, what a killed daemon left, and what there is of a version that is to be written. It keeps the
// one that runs, and the three before the new one, as somebody may return to them by hand.
func sweep(dir string, runs, writes uint64) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	for _, e := range list {
		version, err := strconv.ParseUint(e.Name(), 10, 64)
		old := err == nil && version != runs && version+4 <= writes
		if old || err == nil && version == writes || strings.HasPrefix(e.Name(), ".new-") {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("state: %w", err)
			}
		}
	}
	return nil
}
