// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// outgrown reports whether the map of counters is too small for the new program.
func (t *transaction) outgrown() bool {
	return t.counters != nil && t.counters.MaxEntries() < max(t.slots.Size(), t.xdp.Slots)
}

// loadProgram compiles the part of the policy for XDP, and loads the program.
func (t *transaction) loadProgram(context.Context) (err error) {
	key, err := randomKey()
	if err != nil {
		return err
	}
	program, numbers := t.stages.Only()
	options := xdpgen.Options{QuestionKey: key, Slots: make([]uint32, len(numbers)), GuardSlots: t.slots.Guards, Protect: t.found}
	for i, rule := range numbers {
		options.Slots[i] = image.SlotWaiting
		if rule != plan.Waits {
			options.Slots[i] = t.slots.Slots[rule]
		}
	}
	program, options.Slots, t.fresh, err = withTemporary(t.compiled, program, t.manifest, options.Slots, t.manifests)
	if err != nil {
		return err
	}
	if t.xdp, err = xdpgen.Generate(program, options); err != nil {
		return inFile(t.compiled.Policy.File, err)
	}
	if t.xdp.Egress {
		if err := t.mayEgress(); err != nil {
			return err
		}
	}
	from := t.inherits
	if !t.outgrown() {
		from.Counters = t.counters
	}
	if t.program, err = datapath.LoadAfter(&t.xdp.Image, from); err != nil {
		return &unavailableError{err}
	}
	t.manifest.Form, t.manifest.Key = t.xdp.Form, key
	if sums, mix, ok := t.xdp.LimitKeys(); ok && len(t.manifest.Live) > 0 {
		t.manifest.LimitKeys = &manifest.LimitKeys{Sums: sums, Mix: mix}
	}
	return nil
}

// keepCounters copies the counts to a new map if the old map is too small. It sets the counters of new rules to zero, because their slots may have
// counts of removed rules.
func (t *transaction) keepCounters(context.Context) error {
	counters := t.counters
	switch {
	case counters == nil:
		return nil // the new map is all zeros
	case t.outgrown():
		counters = t.program.Map(image.Counters)
		if err := manifest.CarryCounters(t.counters, counters); err != nil {
			return err
		}
	}
	return errors.Join(t.slots.Zero(counters), manifest.Zero(counters, t.fresh))
}

// randomKey returns a random key for questions. The key is never 0.
func randomKey() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a key: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]) | 1, nil
}
