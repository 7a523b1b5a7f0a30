// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// replyPolicy has a service for which XDP answers SYNs, and a rule for which XDP answers DNS queries.
const replyPolicy = `default: drop
checks: off
rules:
  - {name: cut, dns: {type: ANY}, then: truncate}
services:
  - {name: web, port: tcp/80, syn: {when: always, mode: host}}
  - {name: open, port: udp/7000}
`

// replyLimit is the longest time that an answer may take on a busy host.
const replyLimit = time.Minute

// answer is a frame that the card sent: TCP or UDP over IPv4.
type answer struct {
	tags         []uint16 // VLAN identifiers
	proto        byte
	sport, dport uint16
	l4           []byte
}

func parseAnswer(frame []byte) (a answer, ok bool) {
	if len(frame) < 14 {
		return a, false
	}
	rest := frame[12:]
	for len(rest) > 4 && (rest[0] == 0x81 && rest[1] == 0 || rest[0] == 0x88 && rest[1] == 0xa8) {
		a.tags = append(a.tags, binary.BigEndian.Uint16(rest[2:])&0xfff)
		rest = rest[4:]
	}
	if len(rest) < 2+20+8 || rest[0] != 8 || rest[1] != 0 {
		return a, false
	}
	ip := rest[2:]
	a.proto, a.l4 = ip[9], ip[4*(ip[0]&15):]
	a.sport, a.dport = binary.BigEndian.Uint16(a.l4), binary.BigEndian.Uint16(a.l4[2:])
	return a, true
}

// reply returns the next answer from a port of the machine to a port of the peer.
func (s *scene) reply(proto byte, sport, dport uint16) (a answer, came bool) {
	frame := s.wire.Until(func(frame []byte) bool {
		got, ok := parseAnswer(frame)
		a = got
		return ok && a.proto == proto && a.sport == sport && a.dport == dport
	}, replyLimit)
	return a, frame != nil
}

// replies tests XDP's answers with and without a VLAN tag: SYN cookies, with which the peer connects to an application, and truncated DNS responses.
// An answer must have the same tag as the packet that it answers. If XDP cannot add the tag, the kernel must answer SYNs instead.
func (s *scene) replies() {
	for _, offload := range s.offloads() {
		s.machine.Command("ethtool", "-K", s.device(), "rxvlan", offload)
		s.mustApply(replyPolicy, "--target", "xdp")
		host, peer := s.tagged()
		s.connect(fmt.Sprintf("rxvlan %s, no tag", offload), s.host(), s.peer())
		s.connect(fmt.Sprintf("rxvlan %s, tag 6", offload), host, peer, tag{0x8100, 6})
		s.truncated(offload)
	}
}

// connect opens a TCP connection, sends a text, and waits until the application has received the text and returned it.
func (s *scene) connect(what, host, peer string, tags ...tag) {
	s.Helper()
	s.sent++
	port, text := uint16(20000+s.sent), fmt.Sprintf("%s-%s-%d", s.name, s.Name(), s.sent)
	between := fmt.Sprintf("tcp %s:%d > %s:80", peer, port, host)
	var ids []uint16
	for _, t := range tags {
		ids = append(ids, t.id)
	}
	s.wire.Send(s.frame(between+" S seq=1000", tags...))
	a, came := s.reply(6, 80, port)
	if !came {
		s.Errorf("%s: no answer to a SYN: %s", what, s.machine.Must("floodwall status --all; ip -s link show "+s.device()))
		return
	}
	if !slices.Equal(a.tags, ids) {
		s.Errorf("%s: the answer to a SYN has the tags %v, want %v", what, a.tags, ids)
	}
	seq := binary.BigEndian.Uint32(a.l4[4:]) + 1
	data := s.frame(fmt.Sprintf("%s .P seq=1001 ack=%d tcpopts=none payload=%q", between, seq, text), tags...)
	for range 20 {
		s.wire.Send(data)
		back, came := s.reply(6, 80, port)
		for came && !strings.Contains(string(back.l4), text) { // an ACK, or the SYN cookie again
			back, came = s.reply(6, 80, port)
		}
		if came {
			break
		}
	}
	if !s.gets("tcp/80 " + text) {
		s.Errorf("%s: the application has no connection: %s", what, s.machine.Must("floodwall status --all"))
	}
	if got := s.counts("web"); got == 0 {
		s.Errorf("%s: no packet of the service is counted", what)
	}
}

// gets waits until the agent has received a text at a port, as in "tcp/80 hello". It reports whether the text has arrived.
func (s *scene) gets(what string) bool {
	for began := time.Now(); time.Since(began) < replyLimit; time.Sleep(100 * time.Millisecond) {
		if s.machine.Received()[what] > 0 {
			return true
		}
	}
	return false
}

// truncated sends DNS queries. XDP must answer them with a truncated response.
func (s *scene) truncated(offload string) {
	s.Helper()
	s.sent++
	port := uint16(20000 + s.sent)
	for _, tags := range [][]tag{nil, {{0x8100, 6}}} {
		host, peer := s.host(), s.peer()
		if tags != nil {
			host, peer = s.tagged()
		}
		s.wire.Send(s.frame(fmt.Sprintf("udp %s:%d > %s:53 dns=ANY,example.com", peer, port, host), tags...))
		const truncation, response = 0x02, 0x80
		a, came := s.reply(17, 53, port)
		if !came || len(a.l4) < 20 || a.l4[10]&(truncation|response) != truncation|response {
			s.Errorf("rxvlan %s, tags %x: no truncated response: %x", offload, tags, a.l4)
		} else if len(a.tags) != len(tags) {
			s.Errorf("rxvlan %s: a response has the tags %v, the query had %x", offload, a.tags, tags)
		}
	}
}

// counts returns the number of packets about which a rule has decided.
func (s *scene) counts(rule string) (n uint64) {
	s.Helper()
	for _, r := range s.status().Rules {
		if r.Name == rule || strings.HasPrefix(r.Name, rule+":") {
			n += r.Packets
		}
	}
	return n
}
