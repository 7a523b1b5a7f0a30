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

// Nft runs the tool with input, if any.
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

// ToNftables is what the nftables target makes of a program for the device eth0, in a table of this name.
func ToNftables(p *ir.Program, table string) (*nftables.Ruleset, error) {
	pl, err := plan.Hoist(p, plan.TargetNftables)
	if err != nil {
		return nil, err
	}
	return nftables.Generate(pl, nftables.Options{Table: table, Devices: []string{"eth0"}})
}

// nftText is the script that the nftables target makes of a program.
func nftText(p *ir.Program) (string, error) {
	n, err := ToNftables(p, "")
	if err != nil {
		return "", err
	}
	return n.Script, nil
}

// Wire is a cable at whose other end is eth0.
type Wire struct {
	socket int
	to     unix.SockaddrLinklayer
}

// NewWire lays the cable of a test Inside.
func NewWire(t *testing.T) *Wire {
	t.Helper()
	for _, which := range []string{"all", "default"} { // else the kernel sends of its own accord
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

// Send reports whether the kernel takes a frame: none that is too short for its header.
func (w *Wire) Send(frame []byte) bool {
	return unix.Sendto(w.socket, frame, 0, &w.to) == nil
}

// Settled reads the counters that are not 0, when they add up to what is awaited or no longer change.
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

// Sum adds up counters.
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

// AsksFor reports whether a rule tests a field.
func AsksFor(p *ir.Program, f packet.Field) bool {
	return slices.ContainsFunc(p.Rules, func(r ir.Rule) bool {
		return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == f })
	})
}

// OddOptions reports whether the options of a segment with SYN go on behind the one that ends them, or have an MSS of a wrong length or
// a length that does not fit, in front of the first MSS.
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
