// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Judge determines what netfilter rules do with each of many packets. It sends the packets over a link. Before and after every hook with rules
// under test, it has rules of its own that report the packets.
type Judge struct {
	t    testing.TB
	peer string // where frames are put on the wire
	log  *logReader
	sent int // number of frames sent so far; it is in their marks, because a packet that the kernel kept may arrive much later
}

// Fate is the fate of one packet.
type Fate struct {
	Dropped string   // the hook whose rules dropped the packet: ingress, prerouting, raw (after prerouting), input or forward; "" if none did
	Seen    []string // the hooks that the packet reached, in order
	State   string   // the packet's conntrack state at input or forward: new, established, …; "" if the packet did not reach these hooks
}

// hooks are the hooks at which rules are tested, with the priorities before and after those rules.
var hooks = []struct {
	name, hook    string
	before, after int
}{
	{"ingress", "ingress", -500, 500},
	{"prerouting", "prerouting", -460, -440}, // place of nftables' raw chain; conntrack reassembles fragments after it
	{"raw", "prerouting", -310, -290},        // place of iptables' raw table
	{"input", "input", -10, 10},
	{"forward", "forward", -10, 10},
}

const judgeGroup = 77

// lastMark is the mark of the frames that are sent last. These frames are not IP, so that no policy applies to them. A separate rule at ingress
// reports and drops them. The kernel may process up to 8 received frames together (net.core.gro_normal_batch). So lastCount of these frames are sent.
// When the last one is reported, the kernel has handled all other frames.
const (
	lastMark  = 1 << 31
	lastCount = 16
)

// states are the conntrack states, as nft names them.
var states = []string{"new", "established", "related", "invalid", "untracked"}

// NewJudge makes a veth pair of device and peer, adds the addresses to device, and adds the reporting rules. If tracked is true, conntrack is active,
// and a Fate has the conntrack state. The test must run Inside.
func NewJudge(t testing.TB, device, peer string, tracked bool, addresses ...string) *Judge {
	t.Helper()
	Veth(t, device, peer, addresses...)
	for _, line := range []string{
		"ip link set " + device + " mtu 9000 address 02:00:00:00:00:02",
		"ip link set " + peer + " mtu 9000",
		"ip link add out0 type veth peer name out1", "ip link set out0 up", "ip link set out1 up", // for forwarded packets
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
		"sysctl -qw net.ipv4.conf.all.rp_filter=0 net/ipv4/conf/" + device + "/rp_filter=0",
		"ip route add default dev out0", "ip -6 route add default dev out0",
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(witnesses(device, tracked))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	log, err := openLog(judgeGroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.close)
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a)
		if err != nil {
			t.Fatal(err)
		}
		WaitLocal(t, ip)
	}
	return &Judge{t: t, peer: peer, log: log}
}

// WaitLocal waits for the route that makes an address an address of the host. For an IPv6 address, the kernel adds this route with a delay.
func WaitLocal(t testing.TB, a net.IP) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(a)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
	}
	t.Fatalf("%s does not become an address of the host", a)
}

// witnesses returns an nftables table with two reporting chains for each hook.
func witnesses(device string, tracked bool) string {
	var b strings.Builder
	b.WriteString("table inet judge {\n")
	for _, h := range hooks {
		on, from := "", fmt.Sprintf("iifname %q ", device)
		if h.name == "ingress" {
			on, from = fmt.Sprintf(" device %q", device), ""
		}
		for when, priority := range map[string]int{"before": h.before, "after": h.after} {
			fmt.Fprintf(&b, "\tchain %s_%s {\n\t\ttype filter hook %s%s priority %d; policy accept;\n", h.name, when, h.hook, on, priority)
			fmt.Fprintf(&b, "\t\t%smeta mark != 0 log prefix \"%s %s\" group %d\n", from, when, h.name, judgeGroup)
			if tracked && when == "before" && (h.name == "input" || h.name == "forward") {
				for _, s := range states {
					fmt.Fprintf(&b, "\t\t%smeta mark != 0 ct state %s log prefix \"state %s\" group %d\n", from, s, s, judgeGroup)
				}
			}
			b.WriteString("\t}\n")
		}
	}
	b.WriteString("}\n")
	fmt.Fprintf(&b, "table netdev judge {\n\tchain last {\n\t\ttype filter hook ingress device %q priority -500; policy accept;\n", device)
	fmt.Fprintf(&b, "\t\tmeta mark %d log prefix \"last\" group %d\n\t\tmeta mark %d drop\n\t}\n}\n", lastMark, judgeGroup, lastMark)
	return b.String()
}

// Fates sends the frames in order. After the kernel has handled all of them, it returns the fate of each. It returns an error if the packet socket
// refuses a frame.
func (j *Judge) Fates(frames [][]byte) ([]Fate, error) {
	if err := j.send(frames); err != nil {
		return nil, err
	}
	passed := make([]map[string]bool, len(frames))
	fates := make([]Fate, len(frames))
	last := 0
	err := j.log.read(func(l logged) (done bool) {
		if l.mark == lastMark {
			last++
			return last == lastCount
		}
		i := int(l.mark) - 1 - j.sent
		if i < 0 || i >= len(frames) {
			return false
		}
		switch what, name, _ := strings.Cut(l.prefix, " "); what {
		case "before":
			fates[i].Seen = append(fates[i].Seen, name)
		case "state":
			fates[i].State = name
		case "after":
			if passed[i] == nil {
				passed[i] = map[string]bool{}
			}
			passed[i][name] = true
		}
		return false
	})
	j.sent += len(frames)
	for i := range fates {
		for _, name := range fates[i].Seen {
			if !passed[i][name] {
				fates[i].Dropped = name
			}
		}
	}
	return fates, err
}

// send sends the frames, and then the frames with lastMark. The mark of a frame is its number, from 1. The other end of the veth pair keeps the mark.
func (j *Judge) send(frames [][]byte) error {
	defer OnOneCPU(j.t)()
	dev, err := netlink.LinkByName(j.peer)
	if err != nil {
		return fmt.Errorf("device %s: %w", j.peer, err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer unix.Close(socket)
	to := &unix.SockaddrLinklayer{Ifindex: dev.Attrs().Index}
	for i, frame := range frames {
		if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_MARK, j.sent+i+1); err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		if err := sendFrame(socket, frame, to); err != nil {
			return fmt.Errorf("sending frame %d on %s: %w", i, j.peer, err)
		}
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_MARK, lastMark); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	last := make([]byte, 60)
	copy(last, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x06") // of ARP
	for range lastCount {
		if err := sendFrame(socket, last, to); err != nil {
			return fmt.Errorf("sending the last frames on %s: %w", j.peer, err)
		}
	}
	return nil
}
