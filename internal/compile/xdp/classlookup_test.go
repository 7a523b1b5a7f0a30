package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// lookups is how many addresses one packet asks for, in the payload of a UDP packet.
const lookups = 800

const payloadAt = 14 + 20 + 8

// askClasses has a program be one that replaces each address of its packet's payload by its class.
func askClasses(x *xdpgen.Program) {
	x.Entry = nil
	x.Decide = asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R8, asm.R1, 4, asm.Word),
		asm.Add.Imm(asm.R7, payloadAt),
		asm.Mov.Imm(asm.R9, 0),
		asm.Mov.Reg(asm.R1, asm.R7).WithSymbol("next"),
		asm.Add.Imm(asm.R1, 4),
		asm.JGT.Reg(asm.R1, asm.R8, "end"),
		asm.LoadMem(asm.R1, asm.R7, 0, asm.Word),
		asm.Call.Label("class4"),
		asm.StoreMem(asm.R7, 0, asm.R0, asm.Word),
		asm.Add.Imm(asm.R7, 4),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, lookups, "next"),
		asm.LoadImm(asm.R0, int64(image.Decision(image.SlotDefault, 0)), asm.DWord).WithSymbol("end"),
		asm.Return(),
	}
}

// classes are those of addresses, from the program that is loaded.
func classes(t *testing.T, p *ebpf.Program, of []uint32) (all []uint32) {
	t.Helper()
	for len(of) > 0 {
		n := min(len(of), lookups)
		frame := append(subject.FramesOf(t, "udp 9.9.9.9:4000 > 10.0.0.2:53")[0].Frame[:payloadAt:payloadAt], make([]byte, 4*n)...)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(frame[38:], uint16(8+4*n))
		for i, a := range of[:n] {
			binary.NativeEndian.PutUint32(frame[payloadAt+4*i:], a)
		}
		out := make([]byte, len(frame)+256)
		o := ebpf.RunOptions{Data: frame, DataOut: out, Repeat: 1}
		if _, err := p.Run(&o); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			all = append(all, binary.NativeEndian.Uint32(o.DataOut[payloadAt+4*i:]))
		}
		of = of[n:]
	}
	return all
}

// TestClassLookup asks the loaded program for the classes of millions of addresses: listed ones, those beside them, and
// random ones. Lists are of hosts, of hosts that overlap, and of hosts beside networks.
func TestClassLookup(t *testing.T) {
	testutil.RequireRoot(t)
	r, _ := subject.Seeded(t)
	type lists struct{ n, sets, networks int }
	all := []lists{
		{1_350_000, 1, 0}, // so full that lines overflow
		{150_000, 2, 0},
		{250_000, 2, 1 << 12}, // a filter of hosts beside the bitmap of networks
	}
	for _, n := range []int{1, 10, 1000} {
		all = append(all, lists{n, 1, 0}, lists{n, 2, 0}, lists{n, 2, 4})
	}
	if testutil.Long() {
		all = append(all, lists{530_000, 2, 0}, lists{530_000, 2, 1 << 12}, lists{3_000_000, 2, 0}, lists{10_000_000, 1, 0})
	}
	for _, l := range all {
		t.Run(fmt.Sprintf("%d in %d sets, networks=%d", l.n, l.sets, l.networks), func(t *testing.T) {
			checkClasses(t, r, classLists(t, r, l.n, l.sets, l.networks), testutil.Scaled(100_000, 3_000_000))
		})
	}
}

// classLists writes lists of n entries each, of which a third are shared and one in so many is a network, and returns their
// directory.
func classLists(t *testing.T, r *rand.Rand, n, sets, networks int) (dir string) {
	dir = t.TempDir()
	var before []netip.Prefix
	for set := range sets {
		var text []byte
		for i := range n {
			p := netip.PrefixFrom(subject.AddrOf(r.Uint32()), 32)
			if networks > 0 && i%networks == 0 {
				p = netip.PrefixFrom(p.Addr(), 12+r.IntN(20)).Masked()
			}
			if set > 0 && i%3 == 0 {
				p = before[i]
			}
			before = append(before, p)
			text = append(p.AppendTo(text), '\n')
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("set", set)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkClasses compares the classes of so many addresses with the sets that have them.
func checkClasses(t *testing.T, r *rand.Rand, dir string, n int) {
	policy, rules := "sets: {", "}\nrules:\n"
	var sets []*addrs.Set
	files, err := filepath.Glob(dir + "/set*")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		set, _, err := addrs.ReadFile(file, 0)
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
		policy += fmt.Sprintf("s%d: {file: %s}, ", i, filepath.Base(file))
		rules += fmt.Sprintf("  - {name: r%d, from: $s%d, port: %d, then: drop}\n", i, i, 1+i)
	}
	s := subject.LowerFile(t, filepath.Join(dir, "policy.yaml"), policy+rules)
	x := s.Forms(t)[0]
	askClasses(x)
	p := s.Load(t, x)
	ask := make([]uint32, 0, n)
	for len(ask) < n {
		v4 := sets[r.IntN(len(sets))].V4()
		listed := v4[r.IntN(len(v4))]
		ask = append(ask, listed.First, listed.Last, listed.First-1, listed.Last+1, listed.First^1<<r.IntN(32), r.Uint32())
	}
	ask = append(ask, 0, 1<<32-1)
	meaning := map[uint32]int{0: 0}
	for i, class := range classes(t, p.Native(), ask) {
		in := 0
		for j, set := range sets {
			if set.Contains(subject.AddrOf(ask[i])) {
				in |= 1 << j
			}
		}
		if known, ok := meaning[class]; ok && known != in {
			t.Fatalf("%s has class %d: sets %b, but is in sets %b", subject.AddrOf(ask[i]), class, known, in)
		}
		meaning[class] = in
	}
	var packets strings.Builder
	for i, a := range ask[:6000] {
		fmt.Fprintf(&packets, "udp %s:7 > 10.0.0.1:%d\n", subject.AddrOf(a), 1+i/6%len(sets))
	}
	s.AgreeOnce(t, subject.FramesOf(t, packets.String())) // the entry looks up sources itself
	seen := map[int]bool{}
	for class, in := range meaning {
		if seen[in] {
			t.Errorf("more classes than %d are of sets %b", class, in)
		}
		seen[in] = true
	}
}
