package talkers

import (
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Fields are the fields whose values a View counts.
var Fields = []packet.Field{packet.Proto, packet.DPort, packet.SPort, packet.Flags, packet.Length, packet.TTL}

// viewPlaces is how many keys of each kind a View counts. With it no count is more than 1/512 of all packets too high.
const viewPlaces = 512

// View is who and what is in a stream of packets. It takes less than a megabyte.
type View struct {
	Packets uint64 // of IP
	Bytes   uint64 // of IP
	From    *Hierarchy
	To      *Hierarchy

	fields [packet.NumFields]*Counter[uint32]
}

// NewView makes an empty View.
func NewView() *View {
	v := &View{From: NewHierarchy(viewPlaces), To: NewHierarchy(viewPlaces)}
	for _, f := range Fields {
		v.fields[f] = NewCounter[uint32](viewPlaces)
	}
	return v
}

// Add counts a packet, unless it is not IP or cannot be read.
func (v *View) Add(p *packet.Packet) {
	if p.Kind != packet.IP {
		return
	}
	v.Packets++
	v.Bytes += uint64(p.Value[packet.Length])
	v.From.Add(p.Src)
	v.To.Add(p.Dst)
	for _, f := range Fields {
		v.fields[f].Add(p.Value[f])
	}
}

// Get is the count of a value of a field, which must be one of Fields.
func (v *View) Get(f packet.Field, value uint32) Count[uint32] { return v.fields[f].Get(value) }

// Top are the n most frequent values of a field, which must be one of Fields.
func (v *View) Top(f packet.Field, n int) []Count[uint32] { return v.fields[f].Top(n) }
