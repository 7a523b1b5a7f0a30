// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Every is the time between two summaries of a node, and between two views of the fleet.
const Every = 10 * time.Second

// Stale is the age at which a summary, or a view, expires.
const Stale = 30 * time.Second

// Verdicts are the verdicts on packets, in the order of a summary's counts.
var Verdicts = [...]string{"pass", "drop", "reject", "truncate"}

// The limits of a summary, and the highest accepted values. No present network is as fast as these values.
const (
	MaxTalkers = 16
	MaxAttacks = 8
	maxKind    = 64                // bytes
	maxService = 24                // bytes
	maxSpan    = time.Minute       // of one summary
	maxPackets = 10_000_000_000    // a second
	maxBytes   = 5_000_000_000_000 // a second: 40 Tbit/s
	maxOneIn   = 1 << 30
)

// Amount is a number of packets, and the bytes of their frames.
type Amount struct{ Packets, Bytes uint64 }

// Summary is a node's traffic in the last seconds. The subject of its message names the node.
type Summary struct {
	Span    time.Duration // in milliseconds
	Decided [len(Verdicts)]Amount
	Attacks []Attack // active attacks
	OneIn   uint32   // a sample stands for this many packets; 0: no samples, and no talkers
	Talkers []Talker // the sources that sent most, at most MaxTalkers
	Missed  uint64   // largest number of packets that any source missing in Talkers has sent
}

// Attack is an active attack at a node.
type Attack struct {
	Kind    string // such as "SYN flood"
	Service string // the attacked service, such as "tcp/443"; "": more than one service
	Started int64  // milliseconds since 1970 in UTC
	Packets uint64 // a second
}

// Talker is a source: an IPv4 address, or an IPv6 /64. According to the samples, the source sent at least Packets-Error and at most Packets packets.
type Talker struct {
	Prefix  netip.Prefix
	Packets uint64
	Error   uint64
}

// Check returns an error for a summary that cannot be true.
func (s *Summary) Check() error {
	if s.Span < time.Second || s.Span > maxSpan {
		return fmt.Errorf("a summary of %v: want 1s to %v", s.Span, maxSpan)
	}
	seconds := uint64(s.Span/time.Second) + 1
	packets := uint64(0)
	for _, a := range s.Decided {
		if a.Packets > maxPackets*seconds || a.Bytes > maxBytes*seconds {
			return fmt.Errorf("%d packets and %d bytes in %v", a.Packets, a.Bytes, s.Span)
		}
		packets += a.Packets
	}
	if packets > maxPackets*seconds {
		return fmt.Errorf("%d packets in %v", packets, s.Span)
	}
	if err := checkAttacks(s.Attacks); err != nil {
		return err
	}
	return s.checkTalkers(maxPackets * seconds)
}

func checkAttacks(list []Attack) error {
	if len(list) > MaxAttacks {
		return fmt.Errorf("%d attacks at one node", len(list))
	}
	seen := map[[2]string]bool{}
	for _, a := range list {
		switch key := [2]string{a.Kind, a.Service}; {
		case a.Kind == "" || len(a.Kind) > maxKind || len(a.Service) > maxService || !plainText(a.Kind) || !plainText(a.Service):
			return fmt.Errorf("attack %.100q on %.100q", a.Kind, a.Service)
		case seen[key]:
			return fmt.Errorf("attack %q comes twice", a.Kind)
		case a.Packets > maxPackets || a.Started < 0:
			return fmt.Errorf("attack %q of %d packets/s", a.Kind, a.Packets)
		default:
			seen[key] = true
		}
	}
	return nil
}

// plainText reports whether a text is printable ASCII. The check is needed because terminals show the text.
func plainText(text string) bool {
	for _, b := range []byte(text) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

func (s *Summary) checkTalkers(most uint64) error {
	if len(s.Talkers) > MaxTalkers {
		return fmt.Errorf("%d talkers at one node", len(s.Talkers))
	}
	if s.OneIn > maxOneIn || s.OneIn == 0 && (len(s.Talkers) > 0 || s.Missed > 0) {
		return errors.New("talkers without samples")
	}
	seen := map[netip.Prefix]bool{}
	for _, t := range s.Talkers {
		if t.Prefix != SourcePrefix(t.Prefix.Addr()) || seen[t.Prefix] {
			return fmt.Errorf("talker %v is no source, or comes twice", t.Prefix)
		}
		if t.Packets > most || t.Error > t.Packets || t.Packets < s.Missed {
			return fmt.Errorf("talker %v: %d packets, %d too many, %d of others", t.Prefix, t.Packets, t.Error, s.Missed)
		}
		seen[t.Prefix] = true
	}
	if s.Missed > most {
		return fmt.Errorf("%d packets of other sources", s.Missed)
	}
	return nil
}

// SourcePrefix returns the prefix that identifies the host of an address. It is a /64 for IPv6, because a host has a whole /64.
func SourcePrefix(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits)
	return p
}
