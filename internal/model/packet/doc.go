// Package packet says what Floodwall sees in a frame: the fields that rules test and the checks that the frame fails.
// Decode is the reference that the C parser in bpf/ is tested against; Parse and Frame build frames for tests and for
// explain from one line of text. It sends and receives nothing.
//
//	p := packet.Decode(frame)
//	port := p.Value[packet.DPort]
//	spec, err := packet.Parse("tcp 198.51.100.7:999 > 192.0.2.1:80 S") // as `explain` takes it
package packet
