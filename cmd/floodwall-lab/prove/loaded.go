// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/guard"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// loadedCode reads a function as the kernel returns it: the translated instructions (xlated_prog_insns of struct bpf_prog_info), from which the JIT
// compiler makes machine code. The verifier has changed these instructions. The context is struct xdp_buff. Lookups in arrays and the read of jiffies
// are inlined. Maps and functions have no names. loadedCode compares inlined code, instruction by instruction, with the code that the kernel
// generates for that map, and replaces it by the original call.
type loadedCode struct {
	insns   asm.Instructions
	start   int         // the first instruction of the function that is read
	places  []int       // the offset of each instruction, in units of 8 bytes
	at      map[int]int // the instruction at each offset
	maps    map[int64]*mapOf
	values  int64 // offset of the values in struct bpf_array
	symbols *guard.Symbols
}

type mapOf struct {
	name string
	*ebpf.MapInfo
}

// errTranslated is the error for translated code that this model does not understand.
func errTranslated(at int, what string) error {
	return fmt.Errorf("translated instruction %d: %s, which is not what Linux 6.1 to 6.18 makes of it", at, what)
}

// readLoaded reads the entry and decide() of a loaded program, and the offsets of the members of the context.
func readLoaded(p *datapath.Program, names []string) (entry, rules asm.Instructions, members map[int64]int64, err error) {
	info, err := p.Native().Info()
	if err != nil {
		return nil, nil, nil, err
	}
	insns, err := info.Instructions()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("instructions of the loaded program: %w (it takes root, and sysctl net.core.bpf_jit_harden of at most 1)", err)
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("types of the kernel: %w", err)
	}
	c := &loadedCode{insns: insns, at: map[int]int{}, maps: map[int64]*mapOf{}}
	members = map[int64]int64{}
	for name, member := range map[string]int64{"data": contextData, "data_end": contextDataEnd, "data_meta": contextMeta} {
		at, err := guard.MemberOffset(spec, "xdp_buff", name)
		if err != nil {
			return nil, nil, nil, err
		}
		members[int64(at)] = member
	}
	values, err := guard.MemberOffset(spec, "bpf_array", "value")
	if err != nil {
		return nil, nil, nil, err
	}
	c.values = int64(values)
	for _, name := range names {
		m := p.Map(name)
		if m == nil {
			continue
		}
		i, err := m.Info()
		if err != nil {
			return nil, nil, nil, err
		}
		if id, ok := i.ID(); ok {
			c.maps[int64(id)] = &mapOf{name, i}
		}
	}
	if c.symbols, err = guard.KernelSymbols(); err != nil {
		return nil, nil, nil, err
	}
	if entry, err = c.read(""); err != nil {
		return nil, nil, nil, err
	}
	rules, err = c.read(decideName)
	return entry, rules, members, err
}

// drawsRandom reports whether a kernel function is bpf_get_prandom_u32(). The verifier replaces that function by bpf_user_rnd_u32().
func drawsRandom(name string) bool {
	return name == "bpf_user_rnd_u32" || name == "bpf_get_prandom_u32"
}

// bounds finds the begin and the end of a function, and the offsets of all instructions. The name "" means the entry.
func (c *loadedCode) bounds(name string) (start, end int, err error) {
	place, found := 0, name == ""
	c.places, end = nil, len(c.insns)
	for i := range c.insns {
		c.places = append(c.places, place)
		c.at[place] = i
		place++
		if c.insns[i].OpCode.IsDWordLoad() {
			place++
		}
		fn := btf.FuncMetadata(&c.insns[i])
		switch {
		case i == 0 || fn == nil:
		case found:
			end = min(end, i)
		case fn.Name == name:
			start, found = i, true
		}
	}
	if !found {
		return 0, 0, fmt.Errorf("the loaded program has no function %s()", name)
	}
	return start, end, nil
}

// read returns a function's instructions as they were in the image. The name "" means the entry.
func (c *loadedCode) read(name string) (asm.Instructions, error) {
	start, end, err := c.bounds(name)
	if err != nil {
		return nil, err
	}
	c.start = start
	out := slices.Clone(c.insns[start:end])
	for i := range out {
		out[i].Metadata = asm.Metadata{}
		if isJump(&out[i]) {
			to, ok := c.at[c.places[start+i]+1+int(out[i].Offset)]
			if !ok || to < start || to >= end {
				return nil, errTranslated(start+i, "a jump to no instruction of the function")
			}
			out[i] = out[i].WithReference(fmt.Sprintf("at%d", to-start))
		}
	}
	for i := range out {
		out[i] = out[i].WithSymbol(fmt.Sprintf("at%d", i))
	}
	for i := 0; i < len(out); i++ {
		skip, err := c.translate(out, i)
		if err != nil {
			return nil, err
		}
		i += skip
	}
	return out, nil
}

// translate reverses the translation of an instruction and its group. more is the number of further instructions of the group.
func (c *loadedCode) translate(out asm.Instructions, i int) (more int, err error) {
	in := &out[i]
	switch op := in.OpCode; {
	case op.IsDWordLoad() && (in.Src == asm.PseudoMapFD || in.Src == asm.PseudoMapValue):
		m := c.maps[int64(uint32(in.Constant))]
		if m == nil {
			return 0, errTranslated(i, "a map that is none of the program's")
		}
		*in = in.WithReference(m.name)
		if in.Src == asm.PseudoMapFD {
			return c.lookup(out, i, m)
		}
	case op.IsDWordLoad() && in.Src == 0 && c.readsJiffies(out, i):
		keep(&out[i], asm.FnJiffies64.Call())
		keep(&out[i+1], asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
		out[i+1] = out[i+1].WithReference(fmt.Sprintf("at%d", i+2))
		return 1, nil
	case op.Class().IsJump() && op.JumpOp() == asm.Call && in.Src == asm.PseudoCall:
		to, ok := c.at[c.places[c.start+i]+1+int(in.Offset)]
		fn := (*btf.Func)(nil)
		if ok {
			fn = btf.FuncMetadata(&c.insns[to])
		}
		if fn == nil {
			return 0, errTranslated(i, "a call of no function")
		}
		*in = in.WithReference(fn.Name)
	case op.Class().IsJump() && op.JumpOp() == asm.Call:
		if !slices.ContainsFunc(c.symbols.Called(in.Constant), drawsRandom) {
			return 0, errTranslated(i, fmt.Sprintf("a call at distance %d", in.Constant))
		}
		keep(in, asm.FnGetPrandomU32.Call())
	}
	return 0, nil
}

// keep replaces an instruction, but keeps the label.
func keep(at *asm.Instruction, in asm.Instruction) { *at = in.WithSymbol(at.Symbol()) }

// readsJiffies reports whether the code loads the address of jiffies, a variable of the kernel, and reads it.
func (c *loadedCode) readsJiffies(out asm.Instructions, i int) bool {
	if out[i].Constant >= 0 || i+1 >= len(out) { // on 64-bit machines the kernel's addresses are in the upper half
		return false
	}
	next := out[i+1]
	return next.OpCode == asm.LoadMemOp(asm.DWord) && next.Src == out[i].Dst && next.Offset == 0 && out[i].Dst == asm.R0 && next.Dst == asm.R0
}

// lookup replaces the inlined code of bpf_map_lookup_elem() for an array or a per-CPU array by the call. The code comes from array_map_gen_lookup()
// and percpu_array_map_gen_lookup() of kernel/bpf/arraymap.c.
func (c *loadedCode) lookup(out asm.Instructions, i int, m *mapOf) (int, error) {
	perCPU := m.Type == ebpf.PerCPUArray
	size := (int64(m.ValueSize) + 7) &^ 7
	if perCPU {
		size = 8 // size of a pointer
	}
	want := asm.Instructions{asm.Add.Imm(asm.R1, int32(c.values)), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word)}
	var behind asm.Instructions
	if size&(size-1) == 0 {
		behind = append(behind, asm.LSh.Imm(asm.R0, int32(bits.TrailingZeros64(uint64(size)))))
	} else {
		behind = append(behind, asm.Mul.Imm(asm.R0, int32(size)))
	}
	behind = append(behind, asm.Add.Reg(asm.R0, asm.R1))
	if perCPU {
		move := asm.Mov.Reg(asm.R0, asm.R0)
		move.Offset = -1 // the instruction that loads the address of this CPU's part
		behind = append(behind, asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord), move)
	}
	if perCPU || m.Type == ebpf.Array {
		bound := asm.Instruction{OpCode: asm.JGE.Op(asm.ImmSource), Dst: asm.R0, Offset: int16(len(behind) + 1), Constant: int64(m.MaxEntries)}
		want = append(want, bound)
		want = append(want, behind...)
		want = append(want, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: 1}, asm.Mov.Imm(asm.R0, 0))
	}
	if out[i].Dst != asm.R1 || i+len(want) >= len(out) || len(want) == 2 {
		return 0, errTranslated(i, "a lookup in map "+m.name)
	}
	for n, w := range want {
		if g := c.insns[c.start+i+1+n]; g.OpCode != w.OpCode || g.Dst != w.Dst || g.Src != w.Src || g.Offset != w.Offset || g.Constant != w.Constant {
			return 0, errTranslated(i+1+n, fmt.Sprintf("%v where %v is expected of a lookup in map %s", g, w, m.name))
		}
		keep(&out[i+1+n], asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
		out[i+1+n] = out[i+1+n].WithReference(fmt.Sprintf("at%d", i+2+n))
	}
	keep(&out[i+1], asm.FnMapLookupElem.Call())
	return len(want), nil
}

// loadedMaps are the names of the maps that the entry or decide() may refer to.
var loadedMaps = []string{
	image.Counters, image.Listed, image.Reflectors, image.Filter4, image.Filter6, image.HostFilter4, image.Hosts4, image.HostsFound, image.DynamicInfo,
	image.ReplyFilter, image.FloodStates, image.Newcomers, image.IDMasks, image.Tick, image.FlowFilter, image.CookiesSent, image.SynKeys, image.ProtectionStates,
	image.Protections, image.Askers, image.TrafficShares, image.Constants,
	image.Index, image.Rows, image.Results, image.Masks,
}
