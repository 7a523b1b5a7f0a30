// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

const questionKey = 0x5eed

// returning returns an image with the given instructions as its rules. r6 holds the packet. Without a packet, the program jumps to "none" before the
// rules.
func returning(insns ...asm.Instruction) *image.Image {
	body := append(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.Mov.Imm(asm.R0, 0),
		asm.JEq.Imm(asm.R6, 0, "none"),
	}, insns...)
	return &image.Image{
		Decide: append(body, asm.Return().WithSymbol("none")),
		Constants: map[string]any{
			"question_key":     uint64(questionKey),
			"default_decision": image.Decision(image.SlotDefault, 1),
		},
		Slots: image.SlotRules,
		Fill:  func(map[string][]byte) error { return nil },
	}
}

// always returns an image whose rules always return the same decision.
func always(slot uint32, verdict uint8) *image.Image {
	return returning(asm.LoadImm(asm.R0, int64(image.Decision(slot, verdict)), asm.DWord))
}

func load(t testing.TB, im *image.Image) *datapath.Program {
	t.Helper()
	testutil.RequireRoot(t)
	return loadInside(t, im)
}

// loadInside is load for tests in their own namespaces (testutil.Inside), where the user is not root.
func loadInside(t testing.TB, im *image.Image) *datapath.Program {
	t.Helper()
	p, err := datapath.Load(im, nil)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// inTurn loads an image three times, and returns the programs in turn. So two generations that exist at the same time have different programs, and the
// verifier has less to do than with a program for each generation.
func inTurn(t testing.TB, im *image.Image) func() *datapath.Program {
	t.Helper()
	var programs [3]*datapath.Program
	for i := range programs {
		programs[i] = loadInside(t, im)
	}
	next := -1
	return func() *datapath.Program {
		next++
		return programs[next%len(programs)]
	}
}

func frame(t testing.TB, line string) []byte {
	t.Helper()
	s, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return s.Frame()
}

const (
	syn = "tcp 198.51.100.7:1234 > 192.0.2.1:80 S"
	arp = "arp"
	cut = syn + " cut=30"
)

// TestFields loads rules that return the value of a field as the slot of their decision. It compares this value with Decode's, for random frames, and
// for frames of some shapes at every length.
func TestFields(t *testing.T) {
	frames := anyFrames(t)
	for f := range packet.NumFields {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			p := load(t, showing(image.FieldOffset(f)))
			for _, b := range frames {
				checkShown(t, p, b, func(decoded packet.Packet) uint32 { return decoded.Value[f] })
			}
		})
	}
}

// TestPlaces makes the same comparison for the offsets of the L4 header, of the payload and of the packet's end.
func TestPlaces(t *testing.T) {
	frames := anyFrames(t)
	for member, want := range map[string]func(frame []byte, decoded packet.Packet) uint32{
		"l4":      func(frame []byte, decoded packet.Packet) uint32 { return place(frame, decoded.L4) },
		"payload": func(frame []byte, decoded packet.Packet) uint32 { return place(frame, decoded.Payload) },
		"end": func(frame []byte, decoded packet.Packet) uint32 {
			return place(frame, decoded.L4) + uint32(len(decoded.L4))
		},
	} {
		t.Run(member, func(t *testing.T) {
			t.Parallel()
			p := load(t, showing(memberOffset(t, member)))
			for _, b := range frames {
				checkShown(t, p, b, func(decoded packet.Packet) uint32 { return want(b, decoded) })
			}
		})
	}
}

// place returns the offset of a part of a frame, or 0 if there is none. The part extends to the end of the frame's memory.
func place(frame, part []byte) uint32 {
	if part == nil {
		return 0
	}
	return uint32(cap(frame) - cap(part))
}

// memberOffset returns the offset of a member of struct packet that the Go code does not use.
func memberOffset(t *testing.T, name string) int16 {
	t.Helper()
	var s *btf.Struct
	if err := image.Load().Types.TypeByName("packet", &s); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Members {
		if m.Name == name {
			return int16(m.Offset.Bytes())
		}
	}
	t.Fatalf("struct packet has no %s", name)
	return 0
}

// showing returns an image whose rules return the word at an offset of struct packet as the slot. The verdict is reject, which no other code returns.
// The program reads the MSS, and treats all packets to a UDP port as possible DNS messages.
func showing(offset int16) *image.Image {
	im := returning(
		asm.LoadMem(asm.R0, asm.R6, offset, asm.Word),
		asm.LSh.Imm(asm.R0, 8),
		asm.Or.Imm(asm.R0, int32(ir.Reject)),
	)
	im.Constants["dns_ports"], im.Constants["reads_mss"] = uint32(1), true
	im.Constants["dns_port"] = [8]struct{ First, Last uint32 }{{packet.PortUDP, packet.PortNone - 1}}
	return im
}

// anyFrames returns frames of all kinds, among them many DNS messages.
func anyFrames(t testing.TB) [][]byte {
	r := testutil.Random(t)
	frames := everyLength(t)
	var queries packet.Hints
	queries.Values[packet.Proto] = []uint32{17}
	queries.Values[packet.DNS] = []uint32{1, 255, packet.DNSResponse, packet.DNSOther}
	for range testutil.Scaled(3000, 10_000) {
		frames = append(frames, packet.Random(r, packet.Hints{}), packet.Random(r, queries))
	}
	return frames
}

// checkShown compares the word of a frame that a program shows with the expected value of the decoded packet.
func checkShown(t *testing.T, p *datapath.Program, b []byte, shown func(packet.Packet) uint32) {
	t.Helper()
	got, err := p.Ask(b)
	if err != nil {
		t.Fatal(err)
	}
	decoded := packet.Decode(b)
	want := map[packet.Kind]datapath.Answer{
		packet.NotIP:     {Slot: image.SlotNotIP},
		packet.Malformed: {Slot: image.SlotDefault, Verdict: uint8(ir.Drop)},
		packet.IP:        {Slot: shown(decoded), Verdict: uint8(ir.Reject)},
	}[decoded.Kind]
	if got != want {
		t.Fatalf("%x\nshows %+v, want %+v", b, got, want)
	}
}

// everyLength returns frames of several shapes, truncated at each byte.
func everyLength(t testing.TB) (frames [][]byte) {
	for _, line := range []string{
		syn + ` tcpopts=mss:1460,sack,ts,ws:7 vlan=10,20 payload="data"`,
		syn + " ipopts=0194040000 frag=first",
		"udp 198.51.100.7:53 > 192.0.2.1:5 frag=later vlan=9",
		"udp 198.51.100.7:999 > 192.0.2.1:53 dns=ANY,www.example.com,do,cookie:0102030405060708",
		"icmp 198.51.100.7 > 192.0.2.1 dscp=46",
		"tcp [2001:db8::7]:1234 > [2001:db8::1]:80 S ext=hbh,dst,rh2,frag,ah,dst dscp=46",
		"udp [2001:db8::7]:1234 > [2001:db8::1]:80 ext=hbh,frag,dst frag=first",
		"icmpv6 fe80::7 > fe80::1 type=135",
		"udp [2001:db8::7]:1234 > [2001:db8::1]:80 ext=dst frag=later",
	} {
		b := frame(t, line)
		for n := 14; n <= len(b); n++ {
			frames = append(frames, b[:n:n])
		}
	}
	return frames
}

// TestAsk tests all paths on which a program can decide about a frame. Questions must not be counted.
func TestAsk(t *testing.T) {
	im := always(70, 1)
	im.Constants["enabled_checks"] = uint64(1) << packet.TTLZero
	im.Slots = 71
	p := load(t, im)
	for line, want := range map[string]datapath.Answer{
		syn:              {Slot: 70, Verdict: 1},
		arp:              {Slot: image.SlotNotIP},
		cut:              {Slot: image.SlotDefault, Verdict: 1},
		syn + " ttl=0":   {Slot: uint32(packet.TTLZero), Verdict: 1},
		syn + " cut=14":  {Slot: image.SlotDefault, Verdict: 1},
		syn + " len=900": {Slot: 70, Verdict: 1},
	} {
		if got, err := p.Ask(frame(t, line)); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", line, got, err, want)
		}
	}
	for slot, c := range counters(t, p) {
		t.Errorf("slot %d has counted %+v", slot, c)
	}
	if _, err := p.Ask(frame(t, syn)[:13]); err == nil {
		t.Error("a frame of 13 bytes is answered")
	}
}

// TestAskWithoutKey checks that a packet with another generation's key, or with none, is treated like any other packet.
func TestAskWithoutKey(t *testing.T) {
	for _, key := range []uint64{questionKey, 0} {
		im := always(70, 1)
		im.Slots = 71
		im.Constants["question_key"] = key
		p := load(t, im)
		for _, wrong := range []uint64{0, questionKey + 1} {
			datapath.Ask(p.Native(), wrong, frame(t, syn))
		}
		if got := counters(t, p)[70].Packets; got != 2 {
			t.Errorf("key %d: %d packets counted, want 2", key, got)
		}
	}
}

// counters returns the slots that have counted a packet.
func counters(t testing.TB, p *datapath.Program) map[int]image.Counter {
	t.Helper()
	all, err := p.Counters()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[int]image.Counter{}
	for slot, c := range all {
		if c != (image.Counter{}) {
			counted[slot] = c
		}
	}
	return counted
}

// run sends a frame through a program as a device does, and returns the XDP action.
func run(t testing.TB, prog *ebpf.Program, b []byte) uint32 {
	t.Helper()
	action, err := prog.Run(&ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)+256), Repeat: 1})
	if err != nil {
		t.Fatal(err)
	}
	return action
}

const (
	xdpDrop = 1
	xdpPass = 2
)

// TestCounters sends packets. Each must be counted in the slot of its reason, and in no other slot.
func TestCounters(t *testing.T) {
	for _, verdict := range []uint8{0, 1} {
		im := always(1500, verdict)
		im.Constants["enabled_checks"] = uint64(1)<<packet.TTLZero | 1<<packet.SourceMAC
		im.Slots = 1501
		p := load(t, im)
		for _, test := range []struct {
			line   string
			slot   int
			action uint32
		}{
			{syn, 1500, xdpPass - uint32(verdict)},
			{syn + " len=1000", 1500, xdpPass - uint32(verdict)},
			{syn + " ttl=0", int(packet.TTLZero), xdpDrop},
			{syn + " ttl=0 smac=01:00:00:00:00:01", int(packet.SourceMAC), xdpDrop},
			{"arp smac=01:00:00:00:00:01", int(packet.SourceMAC), xdpDrop},
			{arp, image.SlotNotIP, xdpPass},
			{cut, image.SlotDefault, xdpDrop},
		} {
			before, b := counters(t, p), frame(t, test.line)
			for range 3 {
				if action := run(t, p.Native(), b); action != test.action {
					t.Errorf("%s: XDP action %d, want %d", test.line, action, test.action)
				}
			}
			want := before
			want[test.slot] = image.Counter{
				Packets: before[test.slot].Packets + 3,
				Bytes:   before[test.slot].Bytes + 3*uint64(len(b)),
			}
			if got := counters(t, p); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: counters are %v, want %v", test.line, got, want)
			}
		}
	}
}

// TestSharedCounters loads a program that continues the counters of another.
func TestSharedCounters(t *testing.T) {
	first := load(t, always(image.SlotRules, 1))
	run(t, first.Native(), frame(t, syn))
	second, err := datapath.Load(always(image.SlotRules, 1), first.Map(image.Counters))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	run(t, second.Native(), frame(t, syn))
	for _, p := range []*datapath.Program{first, second} {
		if got := counters(t, p)[image.SlotRules].Packets; got != 2 {
			t.Errorf("%d packets counted, want 2", got)
		}
	}
}

// TestCountersFit checks that a program with more slots than the usual map gets a larger map.
func TestCountersFit(t *testing.T) {
	im := always(20_000, 0)
	im.Slots = 20_001
	p := load(t, im)
	run(t, p.Native(), frame(t, syn))
	if got := counters(t, p)[20_000].Packets; got != 1 {
		t.Errorf("%d packets counted, want 1", got)
	}
}

// TestMemory checks that Fill gets zeroed memory of the size of the maps, that its content stays, and that Memory returns the same memory.
func TestMemory(t *testing.T) {
	im := always(image.SlotRules, 1)
	im.Shapes = map[string]image.Shape{image.Lines4: {ValueSize: 64, Entries: 3}, "extra": {ValueSize: 6, Entries: 1000}}
	im.Fill = func(memory map[string][]byte) error {
		if len(memory[image.Lines4]) != 192 || len(memory["extra"]) != 8000 || len(memory) != 2 {
			return fmt.Errorf("%d and %d bytes in %d maps", len(memory[image.Lines4]), len(memory["extra"]), len(memory))
		}
		for i, b := range memory["extra"] {
			if b != 0 {
				return fmt.Errorf("byte %d is %d", i, b)
			}
		}
		copy(memory["extra"], "content")
		return nil
	}
	p := load(t, im)
	memory, release, err := p.Memory("extra", "nonesuch")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if len(memory) != 1 || !strings.HasPrefix(string(memory["extra"]), "content\x00") {
		t.Errorf("memory of %d maps, which begins with %q", len(memory), memory["extra"][:8])
	}
}

func TestLoadErrors(t *testing.T) {
	testutil.RequireRoot(t)
	unknown, refused, failing := always(64, 0), returning(asm.LoadMem(asm.R0, asm.R6, 4000, asm.Word)), always(64, 0)
	unknown.Constants["nonesuch"] = true
	failing.Fill = func(map[string][]byte) error { return fs.ErrInvalid }
	for name, test := range map[string]struct {
		im   *image.Image
		want string
	}{
		"unknown constant":   {unknown, "constant nonesuch: "},
		"refused by kernel":  {refused, "loading the program: "},
		"content impossible": {failing, fs.ErrInvalid.Error()},
	} {
		p, err := datapath.Load(test.im, nil)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %s", name, err, test.want)
		}
		if err == nil {
			p.Close()
		}
	}
	var verifier *ebpf.VerifierError
	if _, err := datapath.Load(refused, nil); !errors.As(err, &verifier) {
		t.Errorf("error is %T, want one with the verifier's log", err)
	}
}

// TestLinear checks that the program for generic mode decides and counts like the native program, with the same maps.
func TestLinear(t *testing.T) {
	im := always(70, 1)
	im.Slots = 71
	p := load(t, im)
	linear, err := p.Linear()
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Linear()
	if err != nil || again != linear {
		t.Errorf("the second time it is another: %v", err)
	}
	if got, err := datapath.Ask(linear, questionKey, frame(t, syn)); err != nil || got != (datapath.Answer{Slot: 70, Verdict: 1}) {
		t.Errorf("answer %+v, %v", got, err)
	}
	if action := run(t, linear, frame(t, syn)); action != xdpDrop {
		t.Errorf("XDP action %d, want drop", action)
	}
	if got := counters(t, p)[70]; got.Packets != 1 {
		t.Errorf("counted %+v, want 1 packet", got)
	}
}
