// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Repairs is the number of times that a part of a generation was repaired, and the last repair.
type Repairs struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
	What  string    `json:"what"` // the last part that was repaired
}

// NoteRepair counts a repair of a generation, and stores the description what of the repair. The note is in the BPF file system, so it takes no disk
// space.
func NoteRepair(state *datapath.State, number int, what string) error {
	n, err := ReadRepairs(state, number)
	if err != nil {
		return err
	}
	text, err := json.Marshal(Repairs{n.Count + 1, time.Now().UTC().Truncate(time.Second), what})
	if err != nil {
		return fmt.Errorf("repairs: %w", err)
	}
	return state.SetNote(number, datapath.NoteRepairs, text)
}

// ReadRepairs reads the stored repairs of a generation. It returns the zero value if there were none.
func ReadRepairs(state *datapath.State, number int) (r Repairs, err error) {
	text, err := state.Note(number, datapath.NoteRepairs)
	if text == nil || err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("generation %d: %s: %w", number, datapath.NoteRepairs, err)
	}
	return r, nil
}
