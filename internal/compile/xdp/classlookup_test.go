// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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

const payloadAt = 14 + 20 + 8

// A lookup is a way in which a program looks up the classes of addresses in the payload of a UDP packet.
type lookup struct {
	size int32 // size of an address in bytes
	most int32 // largest number of addresses in one packet
	ask  asm.Instructions
}

// The lookups. Addresses of IPv4 are in the byte order of this machine.
var (
	lookup4 = lookup{4, 800, asm.Instructions{asm.LoadMem(asm.R1, asm.R7, 0, asm.Word), asm.Call.Label("class4")}}
	lookup6 = lookup{16, 60, asm.Instructions{
		asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord), asm.HostTo(asm.BE, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R7, 8, asm.DWord), asm.HostTo(asm.BE, asm.R2, asm.DWord),
		asm.Call.Label(image.Class6),
	}}
)

// askClasses replaces a program by one that replaces each address in the payload of its packet by the class of that address.
func askClasses(x *xdpgen.Program, l lookup) {
	x.Entry = nil
	x.Decide = slices.Concat(asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R8, asm.R1, 4, asm.Word),
		asm.Add.Imm(asm.R7, payloadAt),
		asm.Mov.Imm(asm.R9, 0),
		asm.Mov.Reg(asm.R1, asm.R7).WithSymbol("next"),
		asm.Add.Imm(asm.R1, l.size),
		asm.JGT.Reg(asm.R1, asm.R8, "end"),
	}, l.ask, asm.Instructions{
		asm.StoreMem(asm.R7, 0, asm.R0, asm.Word),
		asm.Add.Imm(asm.R7, l.size),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, l.most, "next"),
		asm.LoadImm(asm.R0, int64(image.Decision(image.SlotDefault, 0)), asm.DWord).WithSymbol("end"),
		asm.Return(),
	})
}

// classes returns the classes of addresses, from the loaded program.
func (l lookup) classes(t *testing.T, p *ebpf.Program, addresses [][]byte) (all []uint32) {
	t.Helper()
	size := int(l.size)
	for of := range slices.Chunk(addresses, int(l.most)) {
		frame := append(subject.FramesOf(t, "udp 9.9.9.9:4000 > 10.0.0.2:53")[0].Frame[:payloadAt:payloadAt], bytes.Join(of, nil)...)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(frame[38:], uint16(8+size*len(of)))
		out := make([]byte, len(frame)+256)
		o := ebpf.RunOptions{Data: frame, DataOut: out, Repeat: 1}
		if _, err := p.Run(&o); err != nil {
			t.Fatal(err)
		}
		for i := range of {
			all = append(all, binary.NativeEndian.Uint32(o.DataOut[payloadAt+size*i:]))
		}
	}
	return all
}

// classes4 does the same as classes, for IPv4 addresses.
func classes4(t *testing.T, p *ebpf.Program, of []uint32) []uint32 {
	t.Helper()
	addresses := make([][]byte, len(of))
	for i, a := range of {
		addresses[i] = binary.NativeEndian.AppendUint32(nil, a)
	}
	return lookup4.classes(t, p, addresses)
}

// TestClassLookup looks up millions of addresses in the loaded program: listed, adjacent and random addresses. The lists have hosts, overlapping
// hosts, or hosts and networks.
func TestClassLookup(t *testing.T) {
	testutil.RequireRoot(t)
	r, _ := subject.Seeded(t)
	type lists struct{ n, sets, networks int }
	all := []lists{
		{1_350_000, 1, 0}, // so full that lines overflow
		{150_000, 2, 0},
		{250_000, 2, 1 << 12}, // a filter of hosts in addition to the bitmap of networks
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

// classLists writes lists of n entries each, and returns their directory. A third of the entries are in several lists. If networks is not 0, one
// entry in networks is a network.
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

// checkClasses compares the classes of n addresses with the sets that contain them.
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
	askClasses(x, lookup4)
	p := s.Load(t, x)
	ask := make([]uint32, 0, n)
	for len(ask) < n {
		v4 := sets[r.IntN(len(sets))].V4()
		listed := v4[r.IntN(len(v4))]
		ask = append(ask, listed.First, listed.Last, listed.First-1, listed.Last+1, listed.First^1<<r.IntN(32), r.Uint32())
	}
	ask = append(ask, 0, 1<<32-1)
	meaning := map[uint32]int{0: 0}
	for i, class := range classes4(t, p.Native(), ask) {
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
