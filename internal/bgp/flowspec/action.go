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

// Action is what is done with the packets of a flow specification. The zero value lets them pass and has no later flow
// specification asked, as RFC 8955 says of one that has no action.
type Action struct {
	Drop    bool
	Bits    uint64 // a second that pass; 0 is no limit
	Packets uint64 // likewise
}

// The most that a limit of a policy counts in a second. What is allowed more is not limited.
const (
	mostBits    = 100_000_000_000
	mostPackets = 10_000_000
	leastBits   = 8 * 1500 // below which a limit would never pass a packet of 1,500 bytes: such a rate drops
)

// ActionOf reads the action among the extended communities of a route. A traffic filtering action that Floodwall does not take is an error,
// and so is one that is there twice with different values: RFC 8955, 7.7, leaves it open which of them holds. Communities that are no action count
// for nothing.
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

// limit is a rate as a limit has it: 0 when it allows all. A rate below the least drops all, and a negative one is taken for 0
// (RFC 8955, 7.1).
func (a *Action) limit(rate, least, most float64) uint64 {
	if rate < least {
		a.Drop = true
	}
	if rate > most || rate < least {
		return 0
	}
	return uint64(rate)
}

// String is an action in the words of the policy.
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
