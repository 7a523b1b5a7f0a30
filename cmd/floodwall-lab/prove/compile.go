// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"maps"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// questionKey makes the entry check for questions in front of the frame, as the entry of a loaded policy does.
const questionKey = 0x5eed

// Compile compiles a program for XDP, and returns it as the subject of a proof. If loaded is true, the code is the one that the kernel returns after
// loading; otherwise it is the compiler's code. The program is attached to no device.
func Compile(p *ir.Program, loaded bool) (*Subject, error) {
	x, err := xdp.Generate(p, xdp.Options{QuestionKey: questionKey})
	if err != nil {
		return nil, err
	}
	if !loaded {
		return NewSubject(p, x)
	}
	l, err := datapath.Load(&x.Image, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	s, err := newSubject(p, x, func(memory map[string][]byte) error {
		return copyMemory(l, memory)
	})
	if err != nil {
		return nil, err
	}
	var members map[int64]int64
	if s.entry, s.rules, members, err = readLoaded(l, loadedMaps); err != nil {
		return nil, err
	}
	s.loaded, s.world.members = true, members
	return s, nil
}

// copyMemory copies the content of a loaded program's arrays.
func copyMemory(l *datapath.Program, memory map[string][]byte) error {
	mapped, release, err := l.Memory(slices.Collect(maps.Keys(memory))...)
	if err != nil {
		return err
	}
	defer release()
	for name, to := range memory {
		copy(to, mapped[name])
	}
	return nil
}
