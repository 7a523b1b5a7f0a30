// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// NamesStatus has the data of guards on domain names. Guards learn the names from the responses that have left.
type NamesStatus struct {
	Answered int           `json:"answered"` // number of remembered names
	Capacity int           `json:"capacity"`
	Flooded  []FloodedZone `json:"flooded,omitempty"` // zones in which unverified clients get truncated answers for names that are not remembered
}

// FloodedZone is a zone that is flooded.
type FloodedZone struct {
	Zone string  `json:"zone"` // a long name is truncated
	Left float64 `json:"left"` // seconds until the flood state ends if the flood ends now
}

// names reports the names that were answered, and the flooded zones.
func (s *Status) names(g *generation.Generation) error {
	if g.Program == nil {
		return nil
	}
	memory, err := g.Program.Memory(image.AnsweredNames, image.FloodedZones)
	if err != nil || len(memory[image.AnsweredNames]) < image.AnsweredBucketSize*image.AnsweredBuckets {
		return err // no guard remembers names
	}
	now := coarse()
	n := &NamesStatus{Capacity: image.AnsweredSlots * image.AnsweredBuckets}
	for words := memory[image.AnsweredNames]; len(words) > 0; words = words[8:] {
		word := binary.NativeEndian.Uint64(words)
		if age := uint16(uint64(now)>>32) - uint16(word); word != 0 && uint64(age) <= uint64(ir.AnsweredLife)>>32 {
			n.Answered++
		}
	}
	for zones := memory[image.FloodedZones]; len(zones) >= image.ZoneSize; zones = zones[image.ZoneSize:] {
		if left := until(zones[image.ZoneUntilAt:], now); left > 0 {
			n.Flooded = append(n.Flooded, FloodedZone{packet.DNSNameText(zones[image.ZoneNameAt:][:image.ZoneNameSize]), left})
		}
	}
	slices.SortFunc(n.Flooded, func(a, b FloodedZone) int { return strings.Compare(a.Zone, b.Zone) })
	s.Names = n
	return nil
}
