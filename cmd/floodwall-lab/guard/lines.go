// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"sort"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Line is a line of a program's source, and the number of its instructions that the last run executed.
type Line struct {
	Function     string `json:"function"` // "": the program has no BTF
	Source       string `json:"source"`   // file and line; "": generated code
	Instructions int    `json:"instructions"`
}

// places are the functions and lines of a program, in the order of its instructions.
type places struct {
	functions btf.FuncOffsets
	lines     btf.LineOffsets
}

// placesOf reads the kernel's information about a program's source.
func placesOf(p *ebpf.Program) (w places, err error) {
	info, err := p.Info()
	if err != nil {
		return w, fmt.Errorf("lines of a program: %w", err)
	}
	if _, hasBTF := info.BTFID(); !hasBTF {
		return w, nil
	}
	if w.functions, err = info.FuncInfos(); err != nil {
		return w, fmt.Errorf("functions of a program: %w", err)
	}
	if w.lines, err = info.LineInfos(); err != nil {
		return w, fmt.Errorf("lines of a program: %w", err)
	}
	return w, nil
}

// at returns the source line of an instruction. Generated functions have at most one line, for their first instruction.
func (w *places) at(pc int) (l Line) {
	if n := sort.Search(len(w.functions), func(i int) bool { return int(w.functions[i].Offset) > pc }); n > 0 {
		l.Function = w.functions[n-1].Func.Name
		begins := w.functions[n-1].Offset
		if n = sort.Search(len(w.lines), func(i int) bool { return int(w.lines[i].Offset) > pc }); n > 0 && w.lines[n-1].Offset >= begins {
			line := w.lines[n-1].Line
			if line.LineNumber() > 0 {
				l.Source = fmt.Sprintf("%s:%d", filepath.Base(line.FileName()), line.LineNumber())
			}
		}
	}
	return l
}

// Lines returns the lines of the instructions that the last run executed, sorted by their number.
func (m *Machine) Lines() (all []Line) {
	of := map[Line]int{}
	for p, times := range m.executed {
		for pc, n := range times {
			if n > 0 {
				of[p.places.at(pc)] += n
			}
		}
	}
	for l, n := range of {
		l.Instructions = n
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Instructions, a.Instructions), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Source, b.Source))
	})
	return all
}
