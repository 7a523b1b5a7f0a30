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

// A Judge finds out what netfilter rules do with each of many packets: it puts them on the wire and has, before and
// behind every hook where rules under test may be, a rule of its own that reports who came by.
type Judge struct {
	t    testing.TB
	peer string // where frames are put on the wire
	log  *logReader
	sent int // so far: a packet that the kernel kept may come by much later
}

// Fate is what became of one packet.
type Fate struct {
	Dropped string   // the hook whose rules dropped it: ingress, prerouting, raw (behind it), input or forward; "" when none did
	Seen    []string // the hooks that it came to, in order
	State   string   // of conntrack as it was at input or forward: new, established, …; "" when it did not get there
}

// hooks are where rules under test may be: the nft hook, and the priorities between which they are.
var hooks = []struct {
	name, hook    string
	before, after int
}{
	{"ingress", "ingress", -500, 500},
	{"prerouting", "prerouting", -460, -440}, // where nftables' raw chain is: conntrack puts fragments together behind it
	{"raw", "prerouting", -310, -290},        // where that of iptables is
	{"input", "input", -10, 10},
	{"forward", "forward", -10, 10},
}

const judgeGroup = 77

// lastMark is the mark of the frames behind all others. They are no IP, so that no policy has to do with them: a witness of their own reports
// and drops them where others come in. As the kernel may take in some frames together (net.core.gro_normal_batch, 8), the last of
// so many comes when all others have had their fate.
const (
	lastMark  = 1 << 31
	lastCount = 16
)

// states are the states of conntrack as nft names them.
var states = []string{"new", "established", "related", "invalid", "untracked"}

// NewJudge makes the veth pair of device and peer, with these addresses on the device, and the witnesses. With tracked,
// conntrack works, and the fate says the state. The test runs Inside.
func NewJudge(t testing.TB, device, peer string, tracked bool, addresses ...string) *Judge {
	t.Helper()
	Veth(t, device, peer, addresses...)
	for _, line := range []string{
		"ip link set " + device + " mtu 9000 address 02:00:00:00:00:02",
		"ip link set " + peer + " mtu 9000",
		"ip link add out0 type veth peer name out1", "ip link set out0 up", "ip link set out1 up", // where forwarded packets go
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

// WaitLocal waits for the route that makes an address the host's own: that of an IPv6 address comes some time after it.
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

// witnesses is a table with two chains for each hook.
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

// Fates puts each frame on the wire and says what became of it, when the kernel has done with all. Frames that the packet socket does not
// take are an error. The order of the frames is that in which they arrive.
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

// send puts the frames on the wire, each with its number among all, from 1, as mark, which the other end of the pair keeps, and the last
// ones behind them.
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
