// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Community is an extended community (RFC 4360): its type, its subtype, and six bytes.
type Community [8]byte

// The extended communities of traffic filtering actions (RFC 8955, 7).
const (
	rateBytes   = 0x8006
	rateAction  = 0x8007
	redirectAS2 = 0x8008
	marking     = 0x8009
	ratePackets = 0x800c
	redirectIP4 = 0x8108
	redirectAS4 = 0x8208
)

var refusedActions = map[uint16]string{
	rateAction: "traffic-action", redirectAS2: "rt-redirect", redirectIP4: "rt-redirect", redirectAS4: "rt-redirect", marking: "traffic-marking",
	0x0800: "redirect-to-ip", 0x0108: "redirect-to-ip",
}

// Action is the treatment of the packets of a flow specification. The zero value lets the packets pass, and later flow specifications are not
// evaluated, as RFC 8955 requires for a flow specification without actions.
type Action struct {
	Drop    bool
	Bits    uint64 // limit in bits a second; 0: no limit
	Packets uint64 // limit in packets a second; 0: no limit
}

// The largest limits that a policy can have. A higher limit counts as no limit.
const (
	mostBits    = 100_000_000_000
	mostPackets = 10_000_000
	leastBits   = 8 * 1500 // a lower limit would never pass a packet of 1,500 bytes, so such a rate drops all packets
)

// ActionOf parses the action in the extended communities of a route. It returns an error for a traffic filtering action that Floodwall does not
// support. It also returns an error for an action that occurs twice with different values, because RFC 8955, 7.7, does not define which value
// applies. It ignores other communities.
func ActionOf(communities []Community) (Action, error) {
	rates := map[uint16]float32{}
	for _, c := range communities {
		kind := binary.BigEndian.Uint16(c[:])
		if name, ok := refusedActions[kind]; ok {
			return Action{}, fmt.Errorf("the action %s is not supported", name)
		}
		switch {
		case kind == rateBytes || kind == ratePackets:
			rate := math.Float32frombits(binary.BigEndian.Uint32(c[4:]))
			if before, ok := rates[kind]; ok && before != rate {
				return Action{}, errors.New("has two rates")
			}
			if rate != rate {
				return Action{}, errors.New("has a rate that is no number")
			}
			rates[kind] = rate
		case c[0] == 0x80 || c[0] == 0x81 || c[0] == 0x82:
			return Action{}, fmt.Errorf("the action 0x%04x is not known", kind)
		}
	}
	var a Action
	if rate, ok := rates[rateBytes]; ok {
		a.Bits = a.limit(8*float64(rate), leastBits, mostBits)
	}
	if rate, ok := rates[ratePackets]; ok {
		a.Packets = a.limit(float64(rate), 1, mostPackets)
	}
	if a.Drop {
		a = Action{Drop: true}
	}
	return a, nil
}

// limit converts a rate to a limit. A rate above `most` gives 0, which means no limit. A rate below `least` drops everything, and a negative rate
// counts as 0 (RFC 8955, 7.1).
func (a *Action) limit(rate, least, most float64) uint64 {
	if rate < least {
		a.Drop = true
	}
	if rate > most || rate < least {
		return 0
	}
	return uint64(rate)
}

// String returns the action in the words of a policy.
func (a Action) String() string {
	switch {
	case a.Drop:
		return "drop"
	case a.Bits > 0 && a.Packets > 0:
		return fmt.Sprintf("limit %dbit/s, %d/s", a.Bits, a.Packets)
	case a.Bits > 0:
		return fmt.Sprintf("limit %dbit/s", a.Bits)
	case a.Packets > 0:
		return fmt.Sprintf("limit %d/s", a.Packets)
	}
	return "pass"
}
