package control

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// source is what a generation was compiled from: enough to place its rules anew, with all lists as they were, whatever
// has become of the operator's files.
type source struct {
	File    string          `json:"file"`
	Named   packet.CheckSet `json:"named"`
	Program *ir.Program     `json:"program"`
}

// sourceOf writes what an apply compiles from, and gives it a name.
func sourceOf(c *Compiled) (name string, text []byte, err error) {
	text, err = json.Marshal(source{c.Policy.File, c.Policy.Named, c.Program})
	if err != nil {
		return "", nil, fmt.Errorf("keeping what the policy was compiled from: %w", err)
	}
	return rand.Text(), text, nil
}

// readSource reads what a generation was compiled from; nil when that was not kept.
func readSource(state *datapath.State, g *generation) (*Compiled, error) {
	text, err := state.Note(g.number, datapath.NoteSource)
	if text == nil || err != nil {
		return nil, err
	}
	var s source
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("generation %d: %s: %w", g.number, datapath.NoteSource, err)
	}
	return &Compiled{Policy: &policy.Policy{File: s.File, Named: s.Named}, Program: s.Program, plans: plans{}}, nil
}
