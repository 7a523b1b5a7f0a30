// SPDX-License-Identifier: Apache-2.0

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

// kept is the state that a node remembers over restarts. The node writes it to the disk before it acts.
type kept struct {
	Seen        uint64     `json:"seen"`    // the last version that was ordered, for any node; older versions are refused
	Content     string     `json:"content"` // SHA-256 of the files of version Seen
	Phase       wire.Phase `json:"phase"`
	Problem     string     `json:"problem,omitempty"`
	Tries       int        `json:"tries,omitempty"` // trials that were started
	Ends        time.Time  `json:"ends,omitzero"`   // when the trial ends
	Runs        uint64     `json:"runs,omitempty"`  // the last version that was confirmed
	RunsContent string     `json:"runs_content,omitempty"`
}

const keptFile = "state.json"

// Dir returns the directory for the versions that a key has signed. Each key has its own numbering of versions. When a lost key is replaced, the
// numbers of the old and the new key cannot be compared. The directory of a key is kept while another key is trusted.
func Dir(state, key string) string { return filepath.Join(state, "fleet-policies", key) }

// readKept returns the state that a node has stored in dir.
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

// write stores the state in dir. It replaces the file in one step.
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

// sweep removes versions that are not needed, files that a killed daemon left, and files of the version that is about to be written. It keeps the
// version that runs. It also keeps the three versions before the new one, because an operator may return to them by hand.
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
