// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// listing returns a policy with one list, whose content is list.
func listing(t *testing.T, list []netip.Addr) *subject.Subject {
	t.Helper()
	var text []byte
	for _, a := range list {
		text = append(a.AppendTo(text), '\n')
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "list"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return subject.LowerFile(t, filepath.Join(dir, "policy.yaml"), "sets: {list: {file: list}}\nrules: [{name: listed, from: $list, then: drop}]\n")
}

// TestClassWrapped checks a list of hosts whose last line overflows into the first line. All hosts must be found.
func TestClassWrapped(t *testing.T) {
	testutil.RequireRoot(t)
	r, _ := subject.Seeded(t)
	const more = 1 // WIDE_MORE of bpf/classify.h
	var list []netip.Addr
	for range 1200 { // so many that lines are often full
		list = append(list, subject.AddrOf(r.Uint32()))
	}
	s := listing(t, list)
	for try := 0; ; try++ { // each try draws another key
		x := s.Forms(t)[0]
		memory := map[string][]byte{}
		for name, shape := range x.Shapes {
			memory[name] = make([]byte, shape.Size())
		}
		if err := x.Fill(memory); err != nil {
			t.Fatal(err)
		}
		lines := memory[image.Hosts4]
		last := lines[len(lines)-addrs.HostLineBytes:]
		if binary.NativeEndian.Uint32(last[addrs.WideFactorAt:])&more == 0 {
			if try == 500 {
				t.Fatal("no list of 500 has a last line that is full")
			}
			continue
		}
		askClasses(x, lookup4)
		var ask []uint32
		for _, a := range list {
			four := a.As4()
			ask = append(ask, binary.BigEndian.Uint32(four[:]))
		}
		for i, class := range classes4(t, s.Load(t, x).Native(), ask) {
			if class == 0 {
				t.Errorf("%s is listed, and is not found (list %d)", list[i], try)
			}
		}
		return
	}
}

// TestClassLookup6 fills the table of a list of IPv6 addresses up to the largest allowed load. Addresses that are stored many buckets after their
// home must also be found.
func TestClassLookup6(t *testing.T) {
	testutil.RequireRoot(t)
	r, _ := subject.Seeded(t)
	var list []netip.Addr
	for range 131_000 { // of 2^17, which are two thirds of the slots of 2^16 buckets
		a := [16]byte{0x20, 1, 0xd, 0xb8}
		binary.BigEndian.PutUint64(a[8:], r.Uint64())
		list = append(list, netip.AddrFrom16(a))
	}
	s := listing(t, list)
	x := s.Forms(t)[0]
	askClasses(x, lookup6)
	addresses := make([][]byte, len(list))
	for i, a := range list {
		addresses[i] = a.AsSlice()
	}
	missed := 0
	for _, class := range lookup6.classes(t, s.Load(t, x).Native(), addresses) {
		if class == 0 {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d of %d listed addresses are not found", missed, len(list))
	}
}
