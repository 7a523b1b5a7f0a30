// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TalkerFields are the fields whose values Talkers count.
var TalkerFields = []packet.Field{packet.Proto, packet.DPort, packet.SPort, packet.Flags, packet.Length, packet.TTL}

// talkerPlaces is the number of places of each counter. With this number no count is too high by more than 1/512 of all packets.
const talkerPlaces = 512

// Talkers count the sources, destinations and field values in a stream of packets. They use less than a megabyte.
type Talkers struct {
	Packets uint64 // IP packets
	Bytes   uint64 // of IP packets
	From    *Hierarchy
	To      *Hierarchy

	fields [packet.NumFields]*Counter[uint32]
}

// NewTalkers makes empty Talkers.
func NewTalkers() *Talkers {
	v := &Talkers{From: NewHierarchy(talkerPlaces), To: NewHierarchy(talkerPlaces)}
	for _, f := range TalkerFields {
		v.fields[f] = NewCounter[uint32](talkerPlaces)
	}
	return v
}

// Add counts a packet, unless it is not IP or cannot be read.
func (v *Talkers) Add(p *packet.Packet) {
	if p.Kind != packet.IP {
		return
	}
	v.Packets++
	v.Bytes += uint64(p.Value[packet.Length])
	v.From.Add(p.Src)
	v.To.Add(p.Dst)
	for _, f := range TalkerFields {
		v.fields[f].Add(p.Value[f])
	}
}

// Get returns the count of a value of a field. The field must be one of TalkerFields.
func (v *Talkers) Get(f packet.Field, value uint32) Count[uint32] { return v.fields[f].Get(value) }

// Top returns the n most frequent values of a field. The field must be one of TalkerFields.
func (v *Talkers) Top(f packet.Field, n int) []Count[uint32] { return v.fields[f].Top(n) }
