// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// evasion is a known way to evade a policy, and an attempt that the policy passes.
type evasion struct {
	name   string
	policy string // a policy, or the output of iptables-save to import, which begins with *
	passes *attempt
	tries  []*attempt
}

const importedRule = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 2222 -j DROP\nCOMMIT\n"

// evasions returns the known evasions of the threat model.
func evasions() []evasion {
	drops := "devices: [eth0]\ndefault: drop\nchecks: off\nservices: [{name: dns, port: udp/53}]\n"
	return []evasion{
		{"SYN in fragments of 8 bytes past an imported rule", importedRule, segment(false, 80).whole(), []*attempt{
			segment(false, 2222).inFragments(8), segment(false, 2222).inFragments(16), segment(false, 2222).inFragments(8).reversed(),
			segment(true, 2222).inFragments(8), segment(true, 2222).inFragments(24), segment(true, 2222).chainInFragments(),
		}},
		{"extension headers past an imported rule", importedRule, segment(true, 80).behind(extDst, 3), []*attempt{
			segment(true, 2222).behind(extDst, 6), segment(true, 2222).behind(extDst, 7), segment(true, 2222).behind(extDst, 8),
			segment(true, 2222).behind(extRouting, 9), segment(true, 2222).behind(extDst, 40),
		}},
		{"tags past an imported rule", importedRule, segment(false, 80).behindTags(0x8100), []*attempt{
			segment(false, 2222).behindTags(0x8100), segment(false, 2222).behindTags(0x8100, 0x8100),
			segment(false, 2222).behindTags(0x8100, 0x8100, 0x8100), segment(true, 2222).behindTags(0x88a8, 0x8100, 0x88a8, 0x8100),
		}},
		{"no payload length past rules on length and port",
			"devices: [eth0]\nchecks: off\nrules: [{port: tcp/2222, then: drop}, {length: 200-65535, then: drop}]\n",
			segment(true, 80).whole(), []*attempt{segment(true, 2222).withoutLength(), datagram(true, 53, 400).withoutLength()}},
		{"fragments past a rule on flags", "devices: [eth0]\nchecks: off\nrules: [{flags: syn, then: drop}]\n",
			datagram(false, 53, 10).whole(), []*attempt{segment(false, 80).inFragments(8), segment(false, 80).inFragments(16)}},
		{"fragments past a check of SYNs", "devices: [eth0]\ndefault: pass\nchecks: {profile: strict, tiny-fragment: off}\n",
			segment(false, 80).whole(), []*attempt{segment(false, 80).inFragments(8), segment(false, 80).inFragments(16)}},
		{"tags past default: drop", drops, datagram(false, 53, 10).behindTags(0x8100), taggedDatagrams(80)},
		{"UDP-Lite and SCTP to the port of a service", drops, datagram(false, 53, 10).whole(), []*attempt{
			written(false, protoUDPLite, 53).whole(), written(true, protoUDPLite, 53).whole(), written(true, protoUDPLite, 53).behind(extDst, 1),
			written(false, protoUDPLite, 53).behindTags(0x8100), written(false, protoSCTP, 53).whole(), written(true, protoSCTP, 53).whole(),
		}},
		{"rules on ports ask for TCP and UDP only", "devices: [eth0]\nchecks: off\nrules: [{port: 53, then: drop}]\n",
			written(false, protoUDPLite, 53).whole(), []*attempt{datagram(false, 53, 10).whole(), datagram(true, 53, 10).whole(), segment(false, 53).whole()}},
		{"rules on protocols ask for others", "devices: [eth0]\nchecks: off\nrules: [{proto: [udplite, sctp], then: drop}]\n",
			datagram(false, 53, 10).whole(), []*attempt{written(false, protoUDPLite, 53).whole(), written(true, protoUDPLite, 53).whole(),
				written(true, protoUDPLite, 53).behind(extDst, 1), written(false, protoSCTP, 53).whole()}},
		{"tags past rules that reject", "devices: [eth0]\nchecks: off\nrules: [{proto: udp, port: 80, then: reject}]\n",
			datagram(false, 53, 10).whole(), taggedDatagrams(80)},
	}
}

// taggedDatagrams returns datagrams to a port with zero to four VLAN tags in front. The tags have VID 0 and both types. There are two copies of each:
// with and without another tag in the packet's metadata.
func taggedDatagrams(port uint16) (list []*attempt) {
	for depth := range 5 {
		for types := range 1 << depth {
			for _, v6 := range []bool{false, true} {
				var ethers []uint16
				for bit := range depth {
					ethers = append(ethers, []uint16{etherVLAN, etherQinQ}[types>>bit&1])
				}
				list = append(list, datagram(v6, port, 10).behindTags(ethers...))
				beside := datagram(v6, port, 10).behindTags(ethers...)
				beside.frames[0].metadata = true
				list = append(list, beside)
			}
		}
	}
	return list
}

// TestEvasions sends each known evasion to each target. Sockets may receive only packets that the policy passes.
func TestEvasions(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			s := newScene(t)
			for _, e := range evasions() {
				t.Run(e.name, func(t *testing.T) { s.evade(t, target, e) })
			}
		})
	}
}

// TestVLANDevice sends datagrams through a device whose name looks like that of a VLAN of eth0. At stages after ingress, a policy for eth0 must also
// apply to such a device.
func TestVLANDevice(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			s := newScene(t)
			testutil.Veth(t, "eth0.5", "peer5")
			for _, line := range []string{
				"link set eth0.5 address 02:00:00:00:00:02 arp off", "link set peer5 arp off", "route add 10.1.0.0/16 dev eth0.5",
				"-6 route add 2001:db8:1::/48 dev eth0.5",
			} {
				if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
					t.Fatalf("ip %s: %v: %s", line, err, out)
				}
			}
			peer, err := netlink.LinkByName("peer5")
			if err != nil {
				t.Fatal(err)
			}
			s.to.Ifindex = peer.Attrs().Index
			s.evade(t, target, evasion{policy: "devices: [eth0]\ndefault: drop\nplacement: raw\nservices: [{name: dns, port: udp/53}]\n",
				passes: datagram(false, 53, 10).whole(), tries: []*attempt{datagram(false, 80, 10).whole(), datagram(true, 80, 10).whole()}})
		})
	}
}

// evade applies a policy. It sends the attempts that the policy forbids, and the one that it passes.
func (s *scene) evade(t *testing.T, target plan.Target, e evasion) {
	text := e.policy
	if text[0] == '*' {
		r, err := importer.Import(t.Context(), []importer.Source{
			{Name: "rules.v4", Data: []byte("# Generated by iptables-save\n" + text)},
			{Name: "rules.v6", Data: []byte("# Generated by ip6tables-save\n" + text)},
		}, importer.Options{Format: importer.Iptables, Devices: []string{"eth0"}})
		if err != nil {
			t.Fatal(err)
		}
		text = r.Policy
	}
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err == nil {
		_, err = s.Apply(context.Background(), p, control.ApplyOptions{Target: target})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	sent := map[netip.Addr]*attempt{}
	for _, a := range append(slices.Clone(e.tries), e.passes) {
		sent[a.src] = a
		s.send(t, a)
	}
	s.settle(t)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end) || !e.passes.got; time.Sleep(time.Millisecond) {
		for _, event := range s.events(t) {
			if a := sent[event.src]; a != nil {
				a.got = true
			}
		}
		if time.Now().After(end.Add(time.Minute)) {
			t.Errorf("what the policy passes does not arrive: %s\n%s", e.passes, text)
			break
		}
	}
	for _, a := range e.tries {
		if a.got {
			t.Errorf("against the policy a socket received %s\n%s", a, text)
		}
	}
}

// made is the number of attempts that are written by hand. It is part of the source address of each attempt.
var made uint16

func written(v6 bool, proto uint8, port uint16) *attempt {
	made++
	a := &attempt{proto: proto, sport: 40000, dport: port, flags: flagSYN, dst: targets[0][0]}
	a.src = netip.AddrFrom4([4]byte{10, 1, byte(made >> 8), byte(made)})
	if v6 {
		b := netip.MustParseAddr("2001:db8:1::").As16()
		binary.BigEndian.PutUint16(b[14:], made)
		a.src, a.dst = netip.AddrFrom16(b), targets[1][0]
	}
	return a
}

// segment returns an attempt with a SYN to a port. It has no frames yet.
func segment(v6 bool, port uint16) *attempt { return written(v6, protoTCP, port) }

// datagram returns an attempt with a UDP datagram to a port, with size bytes of payload. It has no frames yet.
func datagram(v6 bool, port uint16, size int) *attempt {
	a := written(v6, protoUDP, port)
	a.total = size
	return a
}

// packet returns the attempt as one IP packet. For IPv6, extension headers of the given kinds precede its segment.
func (a *attempt) packet(kinds []uint8, unit int) (ether uint16, ip []byte) {
	h, body := header{ttl: 64, id: uint32(made)}, a.segment(make([]byte, a.total))
	if a.src.Is4() {
		return etherIPv4, a.ipv4(h, body, 0, false)
	}
	next := a.proto
	for _, k := range kinds {
		body = append(extension(next, k, unit), body...)
		next = k
	}
	return etherIPv6, a.ipv6(h, next, body)
}

func (a *attempt) framed(ether uint16, ip []byte, tags ...tag) *attempt {
	a.frames = append(a.frames, frame{bytes: ethernet(ether, ip, tags...)})
	return a
}

func (a *attempt) whole() *attempt { return a.behindTags() }

// behindTags adds a frame with the attempt, with tags of VID 0 in front.
func (a *attempt) behindTags(ethers ...uint16) *attempt {
	var list []tag
	for _, e := range ethers {
		list = append(list, tag{e, 0})
	}
	ether, ip := a.packet(nil, 0)
	return a.framed(ether, ip, list...)
}

// behind adds a frame with the attempt, with n extension headers in front.
func (a *attempt) behind(kind uint8, n int) *attempt {
	ether, ip := a.packet(slices.Repeat([]uint8{kind}, n), 1)
	return a.framed(ether, ip)
}

// withoutLength adds a frame with the attempt, with hop-by-hop options in front and a payload length of 0.
func (a *attempt) withoutLength() *attempt {
	ether, ip := a.packet([]uint8{extHop}, 0)
	binary.BigEndian.PutUint16(ip[4:], 0)
	return a.framed(ether, ip)
}

// inFragments adds frames with the attempt in fragments of size bytes.
func (a *attempt) inFragments(size int) *attempt {
	return a.cut(a.proto, a.segment(make([]byte, a.total)), size)
}

// chainInFragments adds frames with the attempt in fragments. The first fragment contains only destination options.
func (a *attempt) chainInFragments() *attempt {
	body := append(extension(extDst, extDst, 0), extension(a.proto, extDst, 1)...)
	return a.cut(extDst, append(body, a.segment(nil)...), 8)
}

// cut adds frames with the fragments of body. The parameter next is the type of the first header in body.
func (a *attempt) cut(next uint8, body []byte, size int) *attempt {
	h := header{ttl: 64, id: uint32(made)}
	for from := 0; from < len(body); from += size {
		to := min(from+size, len(body))
		part, more := body[from:to], to < len(body)
		if a.src.Is4() {
			a.framed(etherIPv4, a.ipv4(h, part, from, more))
			continue
		}
		a.framed(etherIPv6, a.ipv6(h, extFragment, append(fragmentHeader(next, from, more, h.id), part...)))
	}
	return a
}

func (a *attempt) reversed() *attempt {
	slices.Reverse(a.frames)
	return a
}
