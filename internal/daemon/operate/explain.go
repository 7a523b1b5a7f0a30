// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// PacketError is the error for a description of a packet that cannot be parsed.
type PacketError struct{ Err error }

func (e *PacketError) Error() string { return fmt.Sprintf("packet: %v", e.Err) }

// Hint returns an example of a description.
func (e *PacketError) Hint() string {
	return "describe it like 'tcp 198.51.100.7:1234 > 192.0.2.1:80 S' or 'udp [2001:db8::7]:53 > [2001:db8::1]:4444 len=512'"
}

// ParsePacket parses the description of a packet. The error is a *PacketError.
func ParsePacket(text string) (packet.Spec, error) {
	spec, err := packet.Parse(text)
	if err != nil {
		return packet.Spec{}, &PacketError{err}
	}
	return spec, nil
}

// Explain returns the decision that the loaded policy would make about a described packet.
func (h Host) Explain(ctx context.Context, text string) (control.Explanation, error) {
	spec, err := ParsePacket(text)
	if err != nil {
		return control.Explanation{}, err
	}
	x, err := h.Instance.Explain(ctx, spec)
	if err == nil {
		x.Translated = Translated(ctx, spec)
	}
	return x, err
}

// Translations returns this host's rules that change the destination of packets (DNAT). It returns none when the rules cannot be listed, because
// rights or tools are missing.
func Translations(ctx context.Context) []netfilter.Translation {
	list, err := netfilter.Translations(ctx)
	if err != nil {
		return nil
	}
	return list
}

// Translated returns a text with the destination to which this host may translate a packet, or "" if there is none.
func Translated(ctx context.Context, spec packet.Spec) string {
	p := spec.Packet()
	if proto := p.Value[packet.Proto]; p.Kind != packet.IP || proto != unix.IPPROTO_TCP && proto != unix.IPPROTO_UDP {
		return ""
	}
	return control.Translated(Translations(ctx), uint8(p.Value[packet.Proto]), uint16(p.Value[packet.DPort]))
}
