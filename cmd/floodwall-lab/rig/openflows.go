// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// EgressProgram opens the program at the egress hook (TCX, Linux 6.6) of a device in the calling thread's network namespace.
func EgressProgram(device string) (*ebpf.Program, error) {
	return onlyProgram(device, ebpf.AttachTCXEgress, "leaves")
}

// IngressProgram opens the program at the ingress hook of tc in the same way.
func IngressProgram(device string) (*ebpf.Program, error) {
	return onlyProgram(device, ebpf.AttachTCXIngress, "enters")
}

// onlyProgram opens the one program at a hook of tc of a device. The way of packets there is a word for errors: enters or leaves.
func onlyProgram(device string, hook ebpf.AttachType, way string) (*ebpf.Program, error) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: hook})
	if err != nil {
		return nil, &Missing{Reason: fmt.Sprintf("what %s device %s: %v", way, device, err)}
	}
	if len(there.Programs) != 1 {
		return nil, fmt.Errorf("device %s: %d programs see what %s, want 1", device, len(there.Programs), way)
	}
	return ebpf.NewProgramFromID(there.Programs[0].ID)
}

// goesOn reports whether a packet continues after the egress hook: TC_ACT_OK, or TCX_NEXT of linux/bpf.h.
func goesOn(action uint32) bool { return action == 0 || action == ^uint32(0) }

// BothSides opens the ingress and the egress program of a device in the calling thread's network namespace, and calls use with them.
func BothSides(device string, use func(xdp, egress *ebpf.Program) error) error {
	xdp, err := AttachedProgram(device)
	if err != nil {
		return err
	}
	defer xdp.Close()
	egress, err := EgressProgram(device)
	if err != nil {
		return err
	}
	defer egress.Close()
	return use(xdp, egress)
}

// Frame returns the frame of a packet in the notation of package packet.
func Frame(line string) ([]byte, error) {
	spec, err := packet.Parse(line)
	if err != nil {
		return nil, fmt.Errorf("packet %q: %w", line, err)
	}
	return spec.Frame(), nil
}

// MustPayload returns the UDP payload of a datagram. The text is the part after the addresses in that notation. MustPayload panics on bad text.
func MustPayload(text string) []byte {
	const headers = 14 + 20 + 8
	frame, err := Frame("udp 10.0.0.1:7000 > 10.0.0.2:7000 " + text)
	if err != nil {
		panic(err)
	}
	return frame[headers:]
}

// Leave runs the egress program on a packet in the notation of package packet.
func Leave(egress *ebpf.Program, line string) error {
	frame, err := Frame(line)
	if err != nil {
		return err
	}
	return leave(egress, frame)
}

// Arrive runs an XDP program on a packet, and returns the enum xdp_action.
func Arrive(xdp *ebpf.Program, line string) (action uint32, err error) {
	frame, err := Frame(line)
	if err != nil {
		return 0, err
	}
	return arrive(xdp, frame)
}

func arrive(xdp *ebpf.Program, frame []byte) (action uint32, err error) {
	return xdp.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)})
}

func leave(egress *ebpf.Program, frame []byte) error {
	action, _, err := egress.Test(frame)
	if err == nil && !goesOn(action) {
		err = fmt.Errorf("a packet that leaves: action %d", int32(action))
	}
	return err
}

// The offsets of the addresses in an IPv4 frame.
const (
	frameSource      = 26
	frameDestination = 30
)

// OpenFlows opens n TCP connections from one IPv4 address and port to n others: a segment of each leaves, and one arrives.
func OpenFlows(xdp, egress *ebpf.Program, own netip.AddrPort, n int) error {
	const port = 443
	out, err := Frame(fmt.Sprintf("tcp %s > 192.0.2.1:%d . seq=1 ack=1", own, port))
	if err != nil {
		return err
	}
	in, err := Frame(fmt.Sprintf("tcp 192.0.2.1:%d > %s . seq=1 ack=1", port, own))
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(Seed, uint64(own.Port())))
	for range n {
		other := r.Uint32()
		binary.BigEndian.PutUint32(out[frameDestination:], other)
		binary.BigEndian.PutUint32(in[frameSource:], other)
		if err := leave(egress, out); err != nil {
			return err
		}
		// The segment does not pass if the table had no space for the flow.
		if _, err := arrive(xdp, in); err != nil {
			return err
		}
	}
	return nil
}

// AgeFlows makes the flows of a program older, by units of 2^32 ns.
func AgeFlows(xdp *ebpf.Program, units uint16) error {
	info, err := xdp.Info()
	if err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("map %d: %w", id, err)
		}
		defer m.Close()
		if info, err := m.Info(); err != nil || info.Name != image.ReplyFlows {
			continue
		}
		words, err := m.LookupBytes(uint32(0))
		if err != nil {
			return fmt.Errorf("map %s: %w", image.ReplyFlows, err)
		}
		for at := 0; at < len(words); at += 8 {
			if word := binary.NativeEndian.Uint64(words[at:]); word != 0 {
				binary.NativeEndian.PutUint64(words[at:], word&^math.MaxUint16|uint64(uint16(word)-units))
			}
		}
		return m.Put(uint32(0), words)
	}
	return fmt.Errorf("the program has no map %s", image.ReplyFlows)
}
