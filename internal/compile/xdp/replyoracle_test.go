// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// tracker is a router with the kernel's conntrack. It passes all outgoing packets. It passes incoming packets only if conntrack classifies them as
// established or related.
type tracker struct {
	outside, inside int // sockets at the far ends of its two cables
	to              [2]unix.SockaddrLinklayer
	mac             [2][]byte // the router's addresses at both cables
	number          uint16    // number of the latest packet that arrived
}

const (
	fromInside  = 0
	fromOutside = 1
)

func newTracker(t *testing.T) *tracker {
	t.Helper()
	far := testutil.NewElsewhere(t)
	testutil.Veth(t, "lan", "lan0", "10.9.0.1/24", "2001:db8:9::1/64")
	testutil.Veth(t, "wan", "wan0", "10.8.0.1/24", "2001:db8:8::1/64")
	k := &tracker{}
	for i, name := range []string{"lan", "wan"} {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		k.mac[i] = dev.Attrs().HardwareAddr
		far.Take(t, name+"0")
	}
	for name, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/lan/rp_filter": "0",
		"ipv4/conf/wan/rp_filter": "0", "netfilter/nf_conntrack_tcp_be_liberal": "1", "netfilter/nf_conntrack_tcp_loose": "1",
		"netfilter/nf_conntrack_checksum": "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev lan", "neigh add 10.8.0.2 lladdr 02:00:00:00:00:08 dev wan",
		"neigh add 2001:db8:9::2 lladdr 02:00:00:00:00:09 dev lan", "neigh add 2001:db8:8::2 lladdr 02:00:00:00:00:08 dev wan",
		"route add 192.0.2.0/24 via 10.9.0.2", "route add 198.51.100.0/24 via 10.8.0.2",
		"route add 2001:db8:2::/64 via 2001:db8:9::2", "route add 2001:db8:100::/64 via 2001:db8:8::2",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	subject.Nft(t, `table inet oracle {
	chain c {
		type filter hook forward priority 0
		iifname lan accept
		ct state established,related accept
		drop
	}
}`, "-f", "-")
	var err error
	far.Do(func() {
		for i, name := range []string{"lan0", "wan0"} {
			var dev netlink.Link
			if dev, err = netlink.LinkByName(name); err != nil {
				return
			}
			if err = netlink.LinkSetUp(dev); err != nil {
				return
			}
			k.to[i] = unix.SockaddrLinklayer{Ifindex: dev.Attrs().Index}
		}
		if k.outside, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		all := unix.SockaddrLinklayer{Ifindex: k.to[fromInside].Ifindex, Protocol: 0x0300} // ETH_P_ALL
		if k.inside, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0x0300); err == nil {
			err = unix.Bind(k.inside, &all)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(k.outside); unix.Close(k.inside) })
	return k
}

// send sends a frame to the router, which forwards it.
func (k *tracker) send(t *testing.T, from int, frame []byte) {
	t.Helper()
	frame = bytes.Clone(frame)
	copy(frame, k.mac[from])
	if err := unix.Sendto(k.outside, frame, 0, &k.to[from]); err != nil {
		t.Fatal(err)
	}
}

// passes reports whether an incoming frame passes the router. If expected is set, it waits longer for the frame, because the machine may be busy.
func (k *tracker) passes(t *testing.T, frame []byte, expected bool) bool {
	t.Helper()
	k.number++
	frame = bytes.Clone(frame)
	mark(frame, k.number)
	k.send(t, fromOutside, frame)
	got := make([]byte, 2048)
	for late := time.Now().Add(time.Minute); ; {
		n, from, err := unix.Recvfrom(k.inside, got, 0)
		if err != nil && expected && time.Now().Before(late) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return false
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype != unix.PACKET_OUTGOING && marked(got[:n]) == k.number {
			return true
		}
	}
}

// mark writes a number into a field of a frame that no test reads: the identification in IPv4, or the flow label in IPv6.
func mark(frame []byte, number uint16) {
	if frame[14]>>4 == 6 {
		binary.BigEndian.PutUint16(frame[16:], number)
		return
	}
	binary.BigEndian.PutUint16(frame[18:], number)
	binary.BigEndian.PutUint16(frame[24:], 0)
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum))
}

func marked(frame []byte) uint16 {
	switch {
	case len(frame) < 34:
		return 0
	case frame[14]>>4 == 6:
		return binary.BigEndian.Uint16(frame[16:])
	}
	return binary.BigEndian.Uint16(frame[18:])
}

// exchange is a random conversation during its generation.
type exchange struct {
	v6         bool
	proto      string
	own, other string // address, and port if the protocol has any
	id         uint16 // of ICMP
	left       []byte // the latest frame that left
	history    []string
	opening    bool          // this side sent the first packet, and all packets so far were SYNs
	both       bool          // the latest packet was a SYN of the other side, after a SYN of this side
	fins       map[bool]bool // which sides have sent a FIN; true is this side
	reset      bool          // there was a reset; from then on, conntrack and the program differ
}

// frame returns a packet of the conversation, and records it in the history.
func (x *exchange) frame(t *testing.T, leaves bool, rest string) []byte {
	t.Helper()
	a, b := x.other, x.own
	if leaves {
		a, b = b, a
	}
	line := fmt.Sprintf("%s %s > %s %s", x.proto, a, b, rest)
	x.history = append(x.history, line)
	frame := subject.FramesOf(t, line)[0].Frame
	if strings.HasPrefix(x.proto, "icmp") {
		at := 14 + 20 + 4
		if x.v6 {
			at += 20
		}
		binary.BigEndian.PutUint16(frame[at:], x.id) // the tracker does not verify the checksum
	}
	if leaves {
		x.left = frame
	}
	return frame
}

// complaint returns an ICMP error of a router on the path. It is about the latest packet that left, or about a packet that never left.
func (x *exchange) complaint(t *testing.T, r *rand.Rand) []byte {
	t.Helper()
	own, _, _ := strings.Cut(strings.Trim(x.own, "["), "]")
	line := fmt.Sprintf("icmpv6 2001:db8:100::99 > %s type=%d", own, 1+2*r.IntN(2))
	if !x.v6 {
		own, _, _ = strings.Cut(own, ":")
		line = fmt.Sprintf("icmp 198.51.100.99 > %s type=%d", own, 3+8*r.IntN(2))
	}
	quoted, other := bytes.Clone(x.left[14:]), ""
	if r.IntN(3) == 0 && x.proto != "esp" {
		quoted[20+20*btoi(x.v6)+5*btoi(strings.HasPrefix(x.proto, "icmp"))]++ // change a port, or the identifier
		other = " another port"
	}
	x.history = append(x.history, line+" about the last that left"+other)
	return subject.FramesOf(t, fmt.Sprintf("%s payload=0x%x", line, quoted))[0].Frame
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestRepliesOracle plays random conversations through the program and through a router. A packet must pass the program if and only if the router's
// conntrack classifies it as established or related. docs/design/replies.md lists the intended differences.
func TestRepliesOracle(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	r := testutil.Random(t)
	p, k := loadReplies(t), newTracker(t)
	var exchanges []*exchange
	used := map[string]bool{}
	var passed, dropped [2]int // number of packets of exchanges, and of ICMP errors about them
	for n := range testutil.Scaled(20_000, 1_000_000) {
		if len(exchanges) < 300 && r.IntN(4) == 0 || len(exchanges) == 0 {
			x := newExchange(r)
			if ends := fmt.Sprint(x.proto, x.own, x.other, x.id); !used[ends] { // otherwise conntrack would still have an earlier exchange with the same ends
				used[ends] = true
				exchanges = append(exchanges, x)
			}
			continue
		}
		at := r.IntN(len(exchanges))
		x := exchanges[at]
		if r.IntN(60) == 0 || x.reset {
			exchanges = append(exchanges[:at], exchanges[at+1:]...)
			continue
		}
		leaves := r.IntN(3) == 0
		var frame []byte
		about := 0 // index of the counters: 1 for an ICMP error
		if !leaves && x.left != nil && r.IntN(10) == 0 {
			frame, about = x.complaint(t, r), 1
		} else {
			frame = x.frame(t, leaves, x.details(r, leaves))
		}
		if leaves {
			p.leave(t, frame)
			k.send(t, fromInside, frame)
			continue
		}
		got := p.arrive(t, frame)
		want := k.passes(t, frame, got)
		if got != want {
			t.Fatalf("packet %d: passes is %t, conntrack says %t, the last of\n%s", n, got, want, strings.Join(x.history, "\n"))
		}
		if got {
			passed[about]++
		} else {
			dropped[about]++
		}
	}
	t.Logf("%d passed, %d dropped", passed, dropped)
	if min(passed[0], dropped[0]) < 1000 || min(passed[1], dropped[1]) < 100 {
		t.Errorf("%d passed, %d dropped: the test says little", passed, dropped)
	}
}

func newExchange(r *rand.Rand) *exchange {
	x := &exchange{fins: map[bool]bool{}, v6: r.IntN(2) == 0, proto: []string{"tcp", "tcp", "udp", "udp", "icmp", "esp"}[r.IntN(6)]}
	own, other := 1024+r.IntN(60000), []int{53, 80, 443, 1 + r.IntN(65535)}[r.IntN(4)]
	if own == 80 {
		own++ // of the service
	}
	if x.v6 {
		x.own, x.other = fmt.Sprintf("[2001:db8:2::%x]:%d", 1+r.IntN(3), own), fmt.Sprintf("[2001:db8:100::%x]:%d", 1+r.IntN(5), other)
	} else {
		x.own, x.other = fmt.Sprintf("192.0.2.%d:%d", 1+r.IntN(3), own), fmt.Sprintf("198.51.100.%d:%d", 1+r.IntN(5), other)
	}
	if x.proto == "tcp" || x.proto == "udp" {
		return x
	}
	x.id = uint16(r.IntN(1 << 16))
	x.own, x.other = "192.0.2.1", fmt.Sprintf("198.51.100.%d", 1+r.IntN(200))
	if x.v6 {
		x.own, x.other = "2001:db8:2::1", fmt.Sprintf("2001:db8:100::%x", 1+r.IntN(200))
	}
	switch {
	case x.proto == "esp":
		x.id = 0
	case x.v6:
		x.proto = "icmpv6"
	}
	return x
}

// details returns the flags of a random segment, or the type of a message of ICMP.
func (x *exchange) details(r *rand.Rand, leaves bool) string {
	switch x.proto {
	case "icmp":
		return fmt.Sprintf("type=%d", 8*r.IntN(2))
	case "icmpv6":
		return fmt.Sprintf("type=%d", 128+r.IntN(2))
	case "udp", "esp":
		return ""
	}
	flags := []string{"S", "SA", "A", "A", "A", "PA", "FA", "R", "RA"}[r.IntN(9)]
	if flags == "SA" && leaves && !x.both { // no stack answers a SYN that it has not received
		flags = "A"
	}
	if flags == "S" && !leaves && len(x.fins) > 0 { // because of such a SYN, conntrack removes a connection that it regards as closed
		flags = "A"
	}
	x.opening = flags == "S" && leaves || x.opening && flags == "S"
	x.both = x.opening && !leaves
	if flags == "FA" {
		x.fins[leaves] = true
	}
	x.reset = x.reset || strings.Contains(flags, "R") || flags == "S" && len(x.fins) > 0
	return flags
}
