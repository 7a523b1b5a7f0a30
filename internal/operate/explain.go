package operate

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/packet"
)

// PacketError is a description of a packet that cannot be read.
type PacketError struct{ Err error }

func (e *PacketError) Error() string { return fmt.Sprintf("packet: %v", e.Err) }

// Hint is an example.
func (e *PacketError) Hint() string {
	return "describe it like 'tcp 198.51.100.7:1234 > 192.0.2.1:80 S' or 'udp [2001:db8::7]:53 > [2001:db8::1]:4444 len=512'"
}

// ParsePacket reads the description of a packet. The error is a *PacketError.
func ParsePacket(text string) (packet.Spec, error) {
	spec, err := packet.Parse(text)
	if err != nil {
		return packet.Spec{}, &PacketError{err}
	}
	return spec, nil
}

// Explain asks what is loaded what it would do with a packet, by its description.
func (h Host) Explain(ctx context.Context, text string) (control.Explanation, error) {
	spec, err := ParsePacket(text)
	if err != nil {
		return control.Explanation{}, err
	}
	return h.Instance.Explain(ctx, spec)
}
