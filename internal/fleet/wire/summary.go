package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Every is the time between two summaries of a node, and between two views of the fleet.
const Every = 10 * time.Second

// Stale is the age from which a summary, or a view, says nothing any more.
const Stale = 30 * time.Second

// Verdicts are those of packets, in the order in which a summary counts them.
var Verdicts = [...]string{"pass", "drop", "reject", "truncate"}

// The most that one summary has, and the highest figures that are believed. No line of today is as fast.
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

// Amount is packets, and the bytes of their frames.
type Amount struct{ Packets, Bytes uint64 }

// Summary is what a node has seen in the last seconds. It does not say which node: its subject does.
type Summary struct {
	Span    time.Duration // in milliseconds
	Decided [len(Verdicts)]Amount
	Attacks []Attack // that go on
	OneIn   uint32   // so many packets have one sample; 0: there are no samples, and no talkers
	Talkers []Talker // the sources that sent most, at most MaxTalkers
	Missed  uint64   // no source that is not among the talkers sent more packets than this
}

// Attack is an attack that goes on at a node.
type Attack struct {
	Kind    string // as "SYN flood"
	Service string // that it is aimed at, as "tcp/443"; "": no single one
	Started int64  // milliseconds since 1970 in UTC
	Packets uint64 // a second
}

// Talker is a source: an IPv4 address, or an IPv6 /64. It sent at most Packets, and at least Packets-Error, as far as the samples of
// the node tell.
type Talker struct {
	Prefix  netip.Prefix
	Packets uint64
	Error   uint64
}

// Check tells why a summary is not believed.
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

// plainText tells whether a text is printable ASCII: it is shown on terminals.
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

// SourcePrefix is what an address is counted as: an IPv6 host has a whole /64.
func SourcePrefix(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits)
	return p
}
