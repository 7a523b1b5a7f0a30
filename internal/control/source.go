package control

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"sync"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// source is what a generation was compiled from: enough to place its rules anew, with all lists as they were, whatever
// has become of the operator's files.
type source struct {
	Form    string          `json:"form"` // of Program: formOf
	File    string          `json:"file"`
	Named   packet.CheckSet `json:"named"`
	Program *ir.Program     `json:"program"`
}

// programForm tells programs of versions apart that have other fields.
var programForm = formOf(reflect.TypeFor[ir.Program]())

// formOf is a hash of the names and types of all fields in a type.
func formOf(t reflect.Type) string {
	h := fnv.New64a()
	seen := map[reflect.Type]bool{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		fmt.Fprint(h, t.Kind(), " ", t, ";")
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				fmt.Fprint(h, t.Field(i).Name, t.Field(i).Tag, ":")
				add(t.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Array:
			add(t.Elem())
		case reflect.Map:
			add(t.Key())
			add(t.Elem())
		}
	}
	add(t)
	return fmt.Sprintf("%016x", h.Sum64())
}

// sourceOf writes what an apply compiles from, and gives it a name.
func sourceOf(c *Compiled) (name string, text []byte, err error) {
	text, err = json.Marshal(source{programForm, c.Policy.File, c.Policy.Named, c.Program})
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
	if s.Form != programForm { // of another version: its fields may mean something else, or be missing
		return nil, nil
	}
	c := Compiled{Policy: &policy.Policy{File: s.File, Named: s.Named}, host: &hostfacts.Facts{}, own: sync.OnceValue(ownAddresses)}
	return c.with(s.Program), nil
}
