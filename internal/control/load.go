package control

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/xdp"
)

// load compiles what is for XDP, and loads the program.
func (a *apply) load(context.Context) (err error) {
	if a.counters != nil && a.counters.MaxEntries() < a.plan.most() {
		a.outgrown, a.counters = a.counters, nil
	}
	key, err := randomKey()
	if err != nil {
		return err
	}
	program, numbers := a.stages.Only()
	options := compile.XDPOptions{QuestionKey: key, Slots: make([]uint32, len(numbers)), GuardSlots: a.plan.guards, Protect: a.found}
	for i, rule := range numbers {
		options.Slots[i] = a.plan.slots[rule]
	}
	if a.xdp, err = compile.ToXDP(program, options); err != nil {
		return fmt.Errorf("%s: %w", a.compiled.Policy.File, err)
	}
	if a.xdp.Egress {
		a.mayEgress()
	}
	from := a.inherits
	from.Counters = a.counters
	if a.program, err = datapath.LoadAfter(&a.xdp.Image, from); err != nil {
		return &unavailableError{err}
	}
	a.manifest.Form, a.manifest.Key = a.xdp.Form, key
	return nil
}

// keepCounters brings the counts to a new map when the old one became too small, and lets new rules begin at zero: in
// either map their slots may have counts of rules that went.
func (a *apply) keepCounters(context.Context) error {
	if a.outgrown == nil && a.counters == nil {
		return nil // a new map of zeros
	}
	counters := a.counters
	if a.outgrown != nil {
		counters = a.program.Map(xdp.Counters)
		if err := move(a.outgrown, counters); err != nil {
			return err
		}
	}
	return a.plan.zero(counters)
}

// randomKey draws the key of questions, never 0.
func randomKey() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a key: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]) | 1, nil
}
