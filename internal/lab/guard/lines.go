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

// Line is a line of a program's source, and how many instructions of it the last run executed.
type Line struct {
	Function     string `json:"function"` // "" where the program has no BTF
	Source       string `json:"source"`   // file and line; "" of generated code
	Instructions int    `json:"instructions"`
}

// places are the functions and lines of a program, in the order of its instructions.
type places struct {
	functions btf.FuncOffsets
	lines     btf.LineOffsets
}

// placesOf reads what the kernel knows of a program's source.
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

// at is the place of an instruction. The generated functions come with a line for their first instruction at most, if any.
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

// Lines are those that the last run executed instructions of, by the number of these.
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
