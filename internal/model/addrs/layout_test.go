// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLayout4 checks the bytes that bpf/floodwall.c reads. A change here needs the same change there.
func TestLayout4(t *testing.T) {
	e := build(t,
		parse(t, "192.0.2.1", "192.0.2.64/26", "192.0.3.0/24", "198.51.0.0/16"),
		parse(t, "192.0.3.255", "198.51.100.0-198.51.100.9"), parse(t, "198.51.100.9-198.51.100.255"))
	want := "0200000000000000" + "ffffffffffffffff" + zeros(16) + "01000000" + zeros(28) + // 192.0.2.0: one class, and class 0
		zeros(24) + "0000000000000080" + "02000100" + zeros(28) + // 192.0.3.0: two classes
		zeros(36) + "01000000" + zeros(24) // 198.51.100.0: the first full block
	if diff := cmp.Diff(want, hex.EncodeToString(e.m4.Lines)); diff != "" {
		t.Error("lines: ", diff)
	}
	index := func(a uint32) string { return hex.EncodeToString(e.m4.Index[a>>13*8:][:8]) }
	if got := index(0xc0000200) + index(0xc6336400); got != "0c000000"+"00000000"+"10000000"+"02000000" {
		t.Errorf("index: %s", got)
	}
	if got := e.m4.Background[0xc633*2:][:2]; got[0] != 1 || got[1] != 0 {
		t.Errorf("background: %x", got)
	}
	if got := hex.EncodeToString(e.m4.Full[8*2:][:8]); got != "0200"+"0300"+"0400"+"0400" {
		t.Errorf("full block: %s", got)
	}
	if bit := 0xc000; e.V4.Shift != 16 || len(e.m4.Filter) != 1<<13 || e.m4.Filter[bit/8] != 1<<(bit%8) {
		t.Errorf("filter of shift %d: %x", e.V4.Shift, e.m4.Filter[bit/8])
	}
}

func zeros(n int) string { return hex.EncodeToString(make([]byte, n)) }

func TestLayout6(t *testing.T) {
	e := build(t, parse(t, "2001:db8::/32"), parse(t, "2001:db8::1"))
	m := e.m6.Buckets
	if len(m) != BucketBytes || e.V6.Entries != 2 || len(e.V6.Lengths) != 2 {
		t.Fatalf("%d bytes of buckets, %d entries, lengths %v", len(m), e.V6.Entries, e.V6.Lengths)
	}
	// All entries have the same home bucket, and keep their order.
	want := "00000000b80d0120" + zeros(8) + "00000000b80d0120" + "0100000000000000" + zeros(16) +
		"01000000" + "02000000" + zeros(4) + "2181" + zeros(2)
	if diff := cmp.Diff(want, hex.EncodeToString(m)); diff != "" {
		t.Error(diff)
	}
	if bit := filter6Bit(0x20010db8 << 32); e.m6.Filter[bit/8] != 1<<(bit%8) {
		t.Errorf("filter at %d: %x", bit, e.m6.Filter[bit/8])
	}
}

// TestHashes compares the hash functions with values that were computed by another program.
func TestHashes(t *testing.T) {
	b := buckets{seed: 0x0123456789abcdef, mask: 0xffffffff}
	p := prefix6{0x20010db800000000, 0x1, 128}
	if got := b.home(p); got != 0xbadb77e {
		t.Errorf("home is %#x", got)
	}
	if got := filter6Bit(p.hi); got != 0x32b0b {
		t.Errorf("filter bit is %#x", got)
	}
	h := Hosts4{Key: 0x01234567, Factor: 0x89abcdef, Filter: 1000}
	if got := h.number(0xc0000201); got != 0x9745deb4 || second(got) != 0x8e3e0e74 {
		t.Errorf("number %#x, second %#x", got, second(got))
	}
	if word, mask := h.filterMask(0x9745deb4); word != 590 || mask != 0x800000000 {
		t.Errorf("word %d of the filter, bits %#x", word, mask)
	}
}

// TestLayoutHosts checks the bytes of a line of hosts, and of the classes and the filter.
func TestLayoutHosts(t *testing.T) {
	h := &Hosts4{Narrow: minNarrow, Wide: 1, Key: 0x01234567, Factor: 0x89abcdef, Filter: 1}
	var list []host
	for n := range uint32(narrowSlots + 1) {
		list = append(list, host{h.address(n), uint16(1 + n%2)})
	}
	m := encodeHosts(h, list)
	want := ""
	for n := range narrowSlots {
		want += fmt.Sprintf("%02x00", n)
	}
	want += "0040" + zeros(6) // the last one is in a wide line
	// The first numbers of the next lines are 0x7ffc1 and 0xbffa1.
	want += strings.Repeat("c1ff", narrowSlots) + strings.Repeat("ff3f", 4)
	want += strings.Repeat("a1ff", narrowSlots) + strings.Repeat("ff3f", 4)
	if diff := cmp.Diff(want, hex.EncodeToString(m.lines[:3*HostLineBytes])); diff != "" {
		t.Error("narrow lines: ", diff)
	}
	want = "1c000000" + zeros(4*9) + "0100" + zeros(2*9) + zeros(4)
	if diff := cmp.Diff(want, hex.EncodeToString(m.lines[minNarrow*HostLineBytes:])); diff != "" {
		t.Error("the wide line: ", diff)
	}
	want = strings.Repeat("01000200", 14) + zeros(8)
	if diff := cmp.Diff(want, hex.EncodeToString(m.classes[:HostClassesBytes])); diff != "" {
		t.Error("classes of a narrow line: ", diff)
	}
}

func TestLayoutDynamic(t *testing.T) {
	d, m := newDynamic(t, 1, 2)
	s := d.Sets[1]
	for _, e := range []Entry{entry("192.0.2.1", 0x11, "scan"), entry("2001:db8::/32", 0, "flood")} {
		if err := s.Insert(e, 1); err != nil {
			t.Fatal(err)
		}
	}
	info := m.Info[DynamicInfoBytes:]
	if got := binary.NativeEndian.Uint64(info); got != s.buckets.seed || got == 0 {
		t.Errorf("seed %x", got)
	}
	want := "01000000" + "01000000" + "02000000" + "02000000" + zeros(40)
	if diff := cmp.Diff(want, hex.EncodeToString(info[8:])); diff != "" {
		t.Error("record: ", diff)
	}
	// The blocks of the second set, for IPv4 and IPv6. They are the hashes of 0xc000 and 0x20010db8: the product with
	// 2^32 divided by the golden ratio.
	for _, row := range []struct{ block, word, value int }{{0xc000 * 0x9e3779b1 >> 24 & 0xff, 0, 1}, {256 + 0x20010db8*0x9e3779b1>>24&0xff, 1, 1 << 32}} {
		if got := native.Uint64(m.Lengths[(512+row.block)*24+8*row.word:]); got != uint64(row.value) {
			t.Errorf("block %d: word %d is %x, want %x", row.block, row.word, got, row.value)
		}
	}
	key, _ := dynamicKey(entry("192.0.2.1", 0, "").Prefix)
	at, _ := s.buckets.find(key)
	bucket := m.Buckets[BucketBytes*(1+at.bucket()):]
	i := at.index()
	got := hex.EncodeToString(bucket[16*i:][:16]) + hex.EncodeToString(bucket[48+4*i:][:4]) + hex.EncodeToString(bucket[60+i:][:1])
	if want := zeros(8) + "010200c0ffff0000" + "11000000" + "81"; got != want {
		t.Errorf("entry: %s, want %s", got, want)
	}
	why := m.Why[WhyBytes*(1+at.bucket())+i]
	if text := m.Texts[64*int(why):][:5]; string(text) != "scan\x00" {
		t.Errorf("reason %d is %q", why, text)
	}
}
