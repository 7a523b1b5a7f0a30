// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Moves has the last change of the mode of each device, by the device's name. The Move of a device that has only refused to change has no Mode.
type Moves map[string]datapath.Move

// Note takes the change of the mode of a device that was just made, and its reason. The device goes on to stay in native mode if it did before.
func (m Moves) Note(d *datapath.Device, why string) {
	d.Move.Why, d.Move.Stays = why, cmp.Or(d.Move.Stays, m[d.Name].Stays)
	m[d.Name] = *d.Move
}

// NoteRefusal takes the refusal of a device to change its mode. It reports whether that was not known.
func (m Moves) NoteRefusal(r *datapath.AttachError) (fresh bool) {
	move := m[r.Device]
	fresh = move.Refused != r.Cause
	move.Refused = r.Cause
	m[r.Device] = move
	return fresh
}

// Write stores the moves with a generation. The note is in the BPF file system, so it takes no disk space.
func (m Moves) Write(state *datapath.State, number int) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("moves: %w", err)
	}
	return state.SetNote(number, datapath.NoteMoves, text)
}

// readMoves reads the moves of a generation. It returns an empty map if there were none.
func readMoves(state *datapath.State, number int) (Moves, error) {
	m := Moves{}
	text, err := state.Note(number, datapath.NoteMoves)
	if text == nil || err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("generation %d: %s: %w", number, datapath.NoteMoves, err)
	}
	return m, nil
}
