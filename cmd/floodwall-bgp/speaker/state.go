// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/os/safefile"
)

// stateFile is the file with the wanted sessions and announcements. It contains passwords, so only this process's user may read it.
const stateFile = "wanted.json"

// read reads the wanted sessions and announcements of the previous process. If there is no file, nothing was wanted. It returns an error for a file
// that cannot be read or is invalid. In that case nothing is announced until the daemon sends what it wants.
func read(dir string) (*wire.Wanted, error) {
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &wire.Wanted{}, nil
	}
	w := &wire.Wanted{}
	if err == nil {
		err = json.Unmarshal(text, w)
	}
	if err == nil {
		err = w.Check()
	}
	if err != nil {
		return &wire.Wanted{}, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return w, nil
}

// write stores the wanted sessions and announcements, safely across a crash of the machine.
func write(dir string, w *wire.Wanted) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(dir, stateFile), text, 0o600)
}

// forget removes the file. This works even on a full disk.
func forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return safefile.SyncDir(dir)
}
