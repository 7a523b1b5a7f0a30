// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// A rate is a number of packets or bits in a time.
type rate struct {
	n    uint64
	per  time.Duration
	bits bool
}

// An amount is a number of packets or bits.
type amount struct {
	n    uint64
	bits bool
}

// The largest and smallest rates of a limit. Packets cannot stay within a limit of less than one packet a day.
const (
	maxPackets = 10_000_000      // in a second
	maxBits    = 100_000_000_000 // in a second
	packetBits = 8 * 1500        // the size of the largest packet on most links
)

const rateForm = "a rate such as 1000/s, 30/min, 10/h, 5/day or 10mbit/s"

// rateTimes are the times that a rate can be given for.
var rateTimes = map[string]time.Duration{
	"s": time.Second, "min": time.Minute, "h": time.Hour, "day": 24 * time.Hour,
}

// bitUnits are the units of bits, which are decimal: 1kbit is 1,000 bits.
var bitUnits = map[string]uint64{"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}

var rateSchema = define("rate", text("^[0-9]+([kmg]?bit)?/(s|min|h|day)$").
	titled("rate").described("Packets or bits in a second, minute (`min`), hour (`h`) or `day`. Bits count the IP packet.").
	withExamples(`"1000/s", "30/min", "10mbit/s"`))

// readRate parses N/TIME, or N and a unit of bits /TIME.
func readRate(text string) (rate, *flaw) {
	number, time, _ := strings.Cut(text, "/")
	if strings.HasPrefix(text, "-") {
		return rate{}, &flaw{msg: "must be positive, got " + wording.Quote(text)}
	}
	r := rate{per: rateTimes[time]}
	a, f := readAmount(number)
	if f != nil || r.per == 0 {
		return rate{}, rateHint(want(rateForm, text), text)
	}
	r.n, r.bits = a.n, a.bits
	return r, r.flaw(text)
}

// flaw returns the flaw of a rate that is too small or too large, nil if it is valid. text is the rate as written.
func (r rate) flaw(text string) *flaw {
	seconds := uint64(r.per / time.Second)
	switch {
	case r.n == 0:
		f := &flaw{msg: "must be positive, got " + wording.Quote(text)}
		return f.hintf("a rule without over matches every packet")
	case !r.bits && r.n > maxPackets*seconds:
		return &flaw{msg: "must be at most 10000000/s, got " + wording.Quote(text)}
	case r.bits && r.n > maxBits*seconds:
		return &flaw{msg: "must be at most 100gbit/s, got " + wording.Quote(text)}
	case r.bits && r.n*uint64(24*time.Hour/r.per) < packetBits:
		return &flaw{msg: "must let through a packet of 1,500 bytes a day, 12kbit/day, got " + wording.Quote(text)}
	}
	return nil
}

// readAmount parses a number of packets, or of bits with their unit.
func readAmount(text string) (amount, *flaw) {
	digits, unit := leadingDigits(text)
	times, bits := bitUnits[unit]
	if !bits && unit != "" {
		return amount{}, want("a number, with kbit, mbit or gbit for bits", text)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	switch most := math.MaxUint64 / max(times, 1); {
	case errors.Is(err, strconv.ErrRange), err == nil && n > most:
		return amount{math.MaxUint64, bits}, nil // a number this large exceeds every limit
	case err != nil, strconv.FormatUint(n, 10) != digits:
		return amount{}, want("a whole number", text)
	}
	return amount{n * max(times, 1), bits}, nil
}

// leadingDigits returns the digits with which text begins, and the rest.
func leadingDigits(text string) (digits, rest string) {
	rest = strings.TrimLeft(text, "0123456789")
	return text[:len(text)-len(rest)], rest
}

// String returns a in the policy's notation.
func (a amount) String() string {
	if !a.bits {
		return strconv.FormatUint(a.n, 10)
	}
	for _, unit := range []string{"gbit", "mbit", "kbit"} {
		if n := bitUnits[unit]; a.n >= n && a.n%n == 0 {
			return fmt.Sprintf("%d%s", a.n/n, unit)
		}
	}
	return fmt.Sprintf("%dbit", a.n)
}
