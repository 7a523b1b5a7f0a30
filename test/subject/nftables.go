// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// Nft runs the program nft with input as its standard input. It returns the output.
func Nft(t testing.TB, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s\n%s", strings.Join(args, " "), err, out, Shortened(input))
	}
	return string(out)
}

// ToNftables compiles a program for the nftables target and the device eth0. The parameter table is the name of the nftables table.
func ToNftables(p *ir.Program, table string) (*nftables.Ruleset, error) {
	pl, err := plan.Hoist(p, plan.TargetNftables)
	if err != nil {
		return nil, err
	}
	return nftables.Generate(pl, nftables.Options{Table: table, Devices: []string{"eth0"}})
}

// nftText returns the script of the nftables target for a program.
func nftText(p *ir.Program) (string, error) {
	n, err := ToNftables(p, "")
	if err != nil {
		return "", err
	}
	return n.Script, nil
}

// Wire sends frames to the device eth0, from the other end of its veth pair.
type Wire struct {
	socket int
	to     unix.SockaddrLinklayer
}

// NewWire makes a Wire in the network namespace of the test (see testutil.Inside).
func NewWire(t *testing.T) *Wire {
	t.Helper()
	for _, which := range []string{"all", "default"} { // otherwise the kernel itself sends packets
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Veth(t, "eth0", "peer0")
	if out, err := exec.Command("ip", "link", "set", "eth0", "address", "02:00:00:00:00:02").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dev, err := netlink.LinkByName("peer0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	return &Wire{socket, unix.SockaddrLinklayer{Ifindex: dev.Attrs().Index}}
}

// Send sends a frame. It returns false if the kernel refuses the frame, which happens if the frame is too short for its header.
func (w *Wire) Send(frame []byte) bool {
	return unix.Sendto(w.socket, frame, 0, &w.to) == nil
}

// Settled returns the counters of a table that are not 0. It waits until the sum of the counters is awaited, or until they no longer change.
func Settled(t *testing.T, table string, awaited int) map[string]uint64 {
	t.Helper()
	for tries, last := 0, uint64(0); ; tries++ {
		counters := map[string]uint64{}
		var listing struct {
			Nftables []struct {
				Counter *struct {
					Name    string
					Packets uint64
				}
			}
		}
		if err := json.Unmarshal([]byte(Nft(t, "", "-j", "list", "counters", "table", "inet", table)), &listing); err != nil {
			t.Fatal(err)
		}
		for _, o := range listing.Nftables {
			if o.Counter != nil && o.Counter.Packets > 0 {
				counters[o.Counter.Name] = o.Counter.Packets
			}
		}
		now := Sum(counters)
		if now == uint64(awaited) || tries == 50 {
			return counters
		}
		if now != last {
			last, tries = now, 0
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Sum returns the sum of all counters.
func Sum(counters map[string]uint64) (n uint64) {
	for _, v := range counters {
		n += v
	}
	return n
}

// IsExtension reports whether a protocol is an extension header of IPv6.
func IsExtension(proto uint32) bool {
	return proto == 0 || proto == 43 || proto == 44 || proto == 51 || proto == 59 || proto == 60
}

// Authenticated reports whether an IPv6 packet has an authentication header.
func Authenticated(frame []byte) bool {
	rest := frame[12:]
	for len(rest) > 4 && (rest[0] == 0x81 || rest[0] == 0x88) {
		rest = rest[4:]
	}
	if rest = rest[2:]; len(rest) < 40 || rest[0]>>4 != 6 {
		return false
	}
	next := rest[6]
	for rest = rest[40:]; len(rest) >= 8 && IsExtension(uint32(next)); {
		size := (int(rest[1]) + 1) * 8
		switch next {
		case 51:
			return true
		case 44:
			size = 8
		}
		next, rest = rest[0], rest[min(size, len(rest)):]
	}
	return next == 51
}

// AsksFor reports whether a rule of the program tests a field.
func AsksFor(p *ir.Program, f packet.Field) bool {
	return slices.ContainsFunc(p.Rules, func(r ir.Rule) bool {
		return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == f })
	})
}

// OddOptions reports whether a SYN segment has odd options. These are options after the end of the list. If they come before the first valid MSS, an
// MSS with a wrong length and another option with a wrong length are also odd.
func OddOptions(pkt *packet.Packet) bool {
	if pkt.Value[packet.MSS] == packet.MSSNone || len(pkt.L4)-len(pkt.Payload) < 20 {
		return false
	}
	for b := pkt.L4[20 : len(pkt.L4)-len(pkt.Payload)]; len(b) > 0; {
		switch {
		case b[0] == 1:
			b = b[1:]
		case b[0] == 0:
			return len(bytes.Trim(b, "\x00")) > 0
		case len(b) < 2 || b[1] < 2 || int(b[1]) > len(b):
			return true
		case b[0] == 2:
			return b[1] != 4
		default:
			b = b[b[1]:]
		}
	}
	return false
}
