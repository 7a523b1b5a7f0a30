// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// source is the data from which a generation was compiled. With it the rules can be placed again, with all lists unchanged, although the operator's
// files may have changed.
type source struct {
	Form    string          `json:"form"` // of Program: ir.ProgramForm
	File    string          `json:"file"`
	Named   packet.CheckSet `json:"named"`
	Program *ir.Program     `json:"program"`
	Found   []ir.Handshake  `json:"found,omitempty"` // how connections to protected services are answered
}

// sourceOf encodes the source of an apply. name is a random name for it.
func sourceOf(c *Compiled, found []ir.Handshake) (name string, text []byte, err error) {
	text, err = json.Marshal(source{ir.ProgramForm(), c.Policy.File, c.Policy.Named, c.Program, found})
	if err != nil {
		return "", nil, fmt.Errorf("keeping what the policy was compiled from: %w", err)
	}
	return rand.Text(), text, nil
}

// readSource reads the stored source of a generation. It returns nil when no source is stored, or when another version stored it.
func readSource(state *datapath.State, g *generation.Generation) (*Compiled, error) {
	text, err := state.Note(g.Number, datapath.NoteSource)
	if text == nil || err != nil {
		return nil, err
	}
	var s source
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("generation %d: %s: %w", g.Number, datapath.NoteSource, err)
	}
	if s.Form != ir.ProgramForm() { // another version stored it: fields may have another meaning, or be missing
		return nil, nil
	}
	c := Compiled{Policy: &policy.Policy{File: s.File, Named: s.Named}, host: &facts.Facts{}, own: sync.OnceValue(ownAddresses)}
	c.found = s.Found
	return c.with(s.Program), nil
}
