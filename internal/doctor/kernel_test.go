// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// Each of these tests runs in its own namespaces and causes a fault that costs packets. The finding must appear, and must be OK after its remedy.

// look runs all probes of the doctor, with the device fw0. If the machine is too busy for a probe to end in its time, look runs all of them again.
func look(t *testing.T) (found []Finding) {
	t.Helper()
	testutil.Eventually(time.Minute, func() bool {
		var err error
		start := time.Now()
		found, err = Examine(context.Background(), Options{Devices: []string{"fw0"}, Instance: control.Instance{Dir: "/sys/fs/bpf/none"}, interval: 100 * time.Millisecond})
		if took := time.Since(start); err != nil || took > 20*Deadline { // a busy machine starts tools late, and a probe without a deadline does not end
			t.Fatalf("it took %v: %v", took, err)
		}
		return !slices.ContainsFunc(found, overdue)
	})
	return found
}

// find returns the worst finding of an id.
func find(t *testing.T, found []Finding, id string) Finding {
	t.Helper()
	for _, s := range Severities {
		for _, f := range found {
			if f.ID == id && f.Severity == s {
				return f
			}
		}
	}
	t.Fatalf("no finding %s in %v", id, found)
	return Finding{}
}

// expect repeats look until the finding has this severity and evidence. It fails the test after a minute.
func expect(t *testing.T, id string, severity Severity, evidence string) Finding {
	t.Helper()
	var f Finding
	is := func() bool { // a run of the probes takes a tenth of a second, in which a busy machine may receive no packet
		f = find(t, look(t), id)
		return f.Severity == severity && regexp.MustCompile(evidence).MatchString(f.Evidence)
	}
	testutil.Eventually(time.Minute, is)
	if f.Severity != severity || !regexp.MustCompile(evidence).MatchString(f.Evidence) {
		t.Errorf("%s: got %s, %q, want %s, %q", id, f.Severity, f.Evidence, severity, evidence)
	}
	if f.Severity != OK && (f.Cost == "" || f.Remedy == "" || f.RemedyKind == "") {
		t.Errorf("%s has no cost or no remedy: %+v", id, f)
	}
	return f
}

// cured runs the remedy of a finding, and checks that the finding is OK afterwards.
func cured(t *testing.T, f Finding) {
	t.Helper()
	if f.RemedyKind != Command {
		t.Fatalf("the remedy of %s is no command: %q", f.ID, f.Remedy)
	}
	sh(t, f.Remedy)
	expect(t, f.ID, OK, "")
}

// sh runs a script.
func sh(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// furnished prepares a test in its own namespaces, with a device fw0. In the process outside of these namespaces it returns false (see
// testutil.Inside).
func furnished(t *testing.T, tools ...string) bool {
	t.Helper()
	for _, tool := range tools {
		testutil.RequireTool(t, tool)
	}
	if !testutil.Inside(t) {
		return false
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	return true
}

// TestAllIsSeen runs the doctor as root in new namespaces. Each probe must return a finding. No subject may be unexamined, and no fault may be found.
func TestAllIsSeen(t *testing.T) {
	if !furnished(t) {
		return
	}
	found := look(t)
	for _, f := range found {
		if strings.HasPrefix(f.Evidence, "not looked at") {
			t.Errorf("%s: %s", f.ID, f.Evidence)
		}
		if f.bad() && f.ID != "softnet-drops" && f.ID != "softnet-squeezes" { // these two count for the whole machine, not for the namespace
			t.Errorf("%+v", f)
		}
	}
	for _, p := range probes {
		if !slices.ContainsFunc(found, func(f Finding) bool { return strings.HasPrefix(f.ID, p.id) }) {
			t.Errorf("the probe %s finds nothing, not even that all is well", p.id)
		}
	}
}

func TestSettings(t *testing.T) {
	if !furnished(t, "sysctl", "ethtool") {
		return
	}
	for _, tt := range []struct {
		setup    string
		id       string
		severity Severity
		evidence string
	}{
		{"sysctl -w net.ipv4.tcp_syncookies=0", "tcp-syncookies", Warning, `^net\.ipv4\.tcp_syncookies is 0 `},
		{"sysctl -w net.ipv4.tcp_syncookies=2", "tcp-syncookies", Note, `is 2 `},
		{"sysctl -w net.ipv4.tcp_synack_retries=5", "tcp-synack-retries", Note, `is 5 `},
		{"sysctl -w net.ipv4.tcp_timestamps=0", "tcp-timestamps", Note, `is 0 `},
		{"sysctl -w net.ipv4.tcp_max_syn_backlog=128", "tcp-syn-backlog", Note, `is 128 `},
		{"sysctl -w net.core.somaxconn=128", "somaxconn", Note, `is 128 `},
		{"sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0", "rp-filter", Note, `fw0.rp_filter is 0 and net.ipv4.conf.all.rp_filter is 0: the larger one, 0, holds`},
		{"sysctl -w net.ipv4.conf.fw0.rp_filter=1 && ip route add default dev fw0 && ip route add default dev fw1 metric 2",
			"rp-filter", Warning, `rp_filter is 1 and .* default routes by 2 devices`},
		{"ethtool -K fw0 gro off", "gro", Note, `is off`},
		{"ip link set fw0 mtu 9000", "xdp-mtu", Note, `MTU is 9000`},
		{"ethtool -L fw0 rx 1", "queues", Note, `^1 of \d+ receive queues`},
	} {
		t.Run(tt.setup, func(t *testing.T) {
			sh(t, tt.setup)
			cured(t, expect(t, tt.id, tt.severity, tt.evidence))
		})
	}
}

// TestRules creates a list of rules that is too long, with each tool.
func TestRules(t *testing.T) {
	if !furnished(t, "nft", "iptables-legacy-restore", "iptables-nft-restore") {
		return
	}
	saved := "*filter\n:INPUT ACCEPT [0:0]\n:long - [0:0]\n-A INPUT -m comment --comment \"all of it\" -j long\n"
	for i := range 1200 {
		saved += fmt.Sprintf("-A long -s 10.0.%d.%d/32 -j DROP\n", i/256, i%256)
	}
	nft := "table inet t {\n chain long {\n"
	for i := range 1200 {
		nft += fmt.Sprintf("  ip saddr 10.0.%d.%d drop\n", i/256, i%256)
	}
	nft += " }\n chain in { type filter hook prerouting priority -300; jump long; }\n}\n"
	for _, tt := range []struct{ load, rules, evidence, export, flush string }{
		{"nft -f -", nft, "chain inet t long has 1,200 rules.*nftables", "nft -j list ruleset | ", "nft flush ruleset"},
		{"iptables-nft-restore", saved + "COMMIT\n", "chain ip filter long has 1,200 rules.*nftables", "iptables-save | ", "nft flush ruleset"},
		{"iptables-legacy-restore", saved + "COMMIT\n", "chain ip filter long has 1,200 rules.*legacy",
			"iptables-legacy-save | ", "iptables-legacy -F"},
	} {
		t.Run(tt.load, func(t *testing.T) {
			expect(t, "rules-path", OK, "meets up to [0-2] rules")
			cmd := exec.Command("sh", "-c", tt.load)
			cmd.Stdin = strings.NewReader(tt.rules)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", tt.load, err, out)
			}
			f := expect(t, "rules-linear", Warning, tt.evidence)
			if !strings.HasPrefix(f.Remedy, tt.export) || !strings.Contains(f.Remedy, "floodwall import ") {
				t.Errorf("remedy %q", f.Remedy)
			}
			path := expect(t, "rules-path", Note, "meets up to 1,201 rules")
			if n := path.Numbers["ns"]; n < 5000 || n > 20000 {
				t.Errorf("1,201 rules are said to cost %d ns", n)
			}
			sh(t, tt.flush)
			expect(t, "rules-path", OK, "")
		})
	}
}

// TestVerdictMap loads two long chains. Only a verdict map jumps to the first, and no rule jumps to the second.
func TestVerdictMap(t *testing.T) {
	if !furnished(t, "nft") {
		return
	}
	list := strings.Repeat("  ip saddr 10.0.0.1 drop\n", 1100)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table ip t {\n chain used {\n" + list + " }\n chain unused {\n" + list + " }\n" +
		" chain in { type filter hook input priority 0; udp dport vmap { 53 : jump used, 54 : accept }; }\n}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var lists []string
	for _, f := range look(t) {
		if f.ID == "rules-linear" {
			lists = append(lists, f.Evidence)
		}
	}
	if len(lists) != 1 || !strings.HasPrefix(lists[0], "chain ip t used has 1,100 rules") {
		t.Errorf("long lists: %q", lists)
	}
}

// TestManagers makes tables and chains with the names that firewall managers use.
func TestManagers(t *testing.T) {
	if !furnished(t, "nft", "iptables-legacy", "iptables-nft") {
		return
	}
	for _, tt := range []struct{ id, setup, evidence string }{
		{"manager-ufw", "iptables-legacy -N ufw-before-input && iptables-legacy -A INPUT -j ufw-before-input", "chains ip filter"},
		{"manager-docker", "iptables-nft -t nat -N DOCKER && iptables-nft -N DOCKER-USER", "chains ip filter, chains ip nat"},
		{"manager-fail2ban", "nft 'add table inet f2b-table; add chain inet f2b-table f2b-chain'", "inet f2b-table"},
		{"manager-firewalld", "nft 'add table inet firewalld; add chain inet firewalld filter_INPUT'", "table inet firewalld"},
		{"manager-kube-proxy", "iptables-nft -t nat -N KUBE-SERVICES", "chains ip nat"},
	} {
		expect(t, tt.id, OK, "no sign of")
		sh(t, tt.setup)
		expect(t, tt.id, Note, tt.evidence)
	}
}

// passing loads an eBPF program that returns a verdict by which every packet passes.
func passing(t *testing.T, kind ebpf.ProgramType, verdict int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "stranger", Type: kind, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestForeignPrograms(t *testing.T) {
	if !furnished(t, "bpftool") {
		return
	}
	fw0, err := netlink.LinkByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "xdp-native", Note, "driver veth has native XDP, redirect, frames in several buffers")
	expect(t, "xdp-occupied", OK, "no XDP program")

	detach, err := testutil.AttachForeign("fw0")
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	cured(t, expect(t, "xdp-occupied", Warning, `name "foreign"`))

	const xdpPass = 2
	for _, flags := range []int{unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_SKB_MODE} {
		if err := netlink.LinkSetXdpFdWithFlags(fw0, passing(t, ebpf.XDP, xdpPass).FD(), flags); err != nil {
			t.Fatal(err)
		}
		cured(t, expect(t, "xdp-occupied", Warning, `name "stranger"`))
	}

	expect(t, "tc-programs", OK, "no BPF program")
	const next = -1 // TCX_NEXT
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: fw0.Attrs().Index, Program: passing(t, ebpf.SchedCLS, next), Attach: ebpf.AttachTCXIngress,
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "tc-programs", Note, `"stranger"`)
	l.Close()
	expect(t, "tc-programs", OK, "")
}

func TestNoNativeXDP(t *testing.T) {
	if !furnished(t) {
		return
	}
	sh(t, "ip link add dull type ifb && ip link set dull up && ip link add bridge0 type bridge && ip link set fw0 master bridge0 && ip link set bridge0 up")
	for device, evidence := range map[string]string{"dull": "driver ifb has no native XDP", "bridge0": "driver bridge has no native XDP"} {
		found, err := Examine(context.Background(), Options{Devices: []string{device}, interval: 1})
		if err != nil {
			t.Fatal(err)
		}
		f := find(t, found, "xdp-native")
		if !strings.Contains(f.Evidence, evidence) || f.Severity == OK || f.Device != device {
			t.Errorf("%s: %+v", device, f)
		}
		if device == "bridge0" && !strings.Contains(f.Remedy, "devices: [fw0]") {
			t.Errorf("remedy for a bridge: %q", f.Remedy)
		}
	}
	if _, err := Examine(context.Background(), Options{Devices: []string{"nowhere"}}); err == nil || err.Error() != "no such device: nowhere" {
		t.Errorf("no device: %v", err)
	}
}

// TestListen fills the accept queue of a listening socket from which no program accepts connections.
func TestListen(t *testing.T) {
	if !furnished(t) {
		return
	}
	expect(t, "listen-queue", OK, "no queue")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 8080}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 20 {
		go func() {
			d := net.Dialer{Timeout: 50 * time.Millisecond} // a second SYN would come after 1 s
			for ctx.Err() == nil {
				if c, err := d.DialContext(ctx, "tcp", "127.0.0.1:8080"); err == nil {
					defer c.Close()
				}
			}
		}()
	}
	var queue, drops Finding
	if !testutil.Eventually(time.Minute, func() bool {
		found := look(t)
		queue, drops = find(t, found, "listen-queue"), find(t, found, "listen-drops")
		return queue.Severity == Problem && strings.Contains(queue.Evidence, "tcp/8080 holds 2 of 1") && drops.Severity == Problem && drops.Numbers["overflows"] > 0
	}) {
		t.Errorf("%+v\n%+v", queue, drops)
	}
	stop()
	unix.Close(fd)
	expect(t, "listen-queue", OK, "no queue")
	expect(t, "listen-drops", Note, ", 0 while looking")
}

// TestReversePathDrops sends packets from an address without a route while the doctor runs.
func TestReversePathDrops(t *testing.T) {
	if !furnished(t, "sysctl") {
		return
	}
	expect(t, "rp-filter-drops", OK, "")
	sh(t, "sysctl -w net.ipv4.conf.fw0.rp_filter=1")
	w := newWire(t)
	during(t, func() { w.flows(t, 10) })
	expect(t, "rp-filter-drops", Warning, "")
}

// TestTableFull fills the connection tracking table with DNS queries to a server. The size of the table cannot be changed in a namespace.
func TestTableFull(t *testing.T) {
	if !furnished(t, "nft", "sysctl") {
		return
	}
	expect(t, "conntrack-services", OK, "no connection is tracked")
	server, err := net.ListenPacket("udp4", "192.0.2.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sh(t, "sysctl -w net.netfilter.nf_conntrack_udp_timeout=600")
	sh(t, "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state new counter'")
	table, err := readTracked(newHost(t.Context(), Options{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if table.max > 1<<19 {
		t.Skipf("the table has space for %d entries", table.max)
	}
	w := newWire(t)
	w.flows(t, int(table.max)/2)
	f := expect(t, "conntrack-table", OK, "entries, (49|50)%")
	cured(t, expect(t, "conntrack-loose", Note, "loose is 1"))
	sh(t, "sysctl -w net.netfilter.nf_conntrack_tcp_loose=1")

	w.flows(t, int(table.max)/2)
	f = expect(t, "conntrack-table", Problem, `entries, (9[5-9]|100)% `)
	if f.Numbers["max"] != table.max || !strings.Contains(f.Remedy, fmt.Sprintf("nf_conntrack_max=%d", 2*table.max)) {
		t.Errorf("conntrack-table: %+v", f)
	}
	f = expect(t, "conntrack-services", Warning, `^of \d\d,\d+ entries looked at: udp/53 (99|100)%`)
	if f.RemedyKind != Policy || f.Remedy != "services:\n  - {name: dns-udp, port: udp/53, track: false}" {
		t.Errorf("conntrack-services: %+v", f)
	}
	t.Run("more", func(t *testing.T) {
		w.flows(t, int(table.max)/8) // no space is left
		during(t, func() { w.flows(t, 1000) })
		expect(t, "conntrack-early-drops", Warning, "thrown out")
	})
	expect(t, "conntrack-early-drops", Note, ", 0 while looking")

	// This rule has the same effect as the policy lines in the remedy.
	sh(t, "nft 'add chain inet t r { type filter hook prerouting priority -300; }; add rule inet t r udp dport 53 notrack'")
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	w.flows(t, 1000)
	expect(t, "conntrack-table", OK, "")
	expect(t, "conntrack-services", OK, "")
}

// wire sends frames to the device fw0, from the other end of its veth pair.
type wire struct {
	socket int
	to     *unix.SockaddrLinklayer
	frame  []byte
	sent   uint32
}

func newWire(t *testing.T) *wire {
	t.Helper()
	spec, err := packet.Parse("udp 203.0.113.9:5 > 192.0.2.1:53")
	if err != nil {
		t.Fatal(err)
	}
	fw0, err := net.InterfaceByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	fw1, err := net.InterfaceByName("fw1")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	w := &wire{socket: socket, to: &unix.SockaddrLinklayer{Ifindex: fw1.Index}, frame: spec.Frame()}
	copy(w.frame, fw0.HardwareAddr)
	return w
}

// flows sends n packets. Each is the first packet of a connection.
func (w *wire) flows(t *testing.T, n int) {
	const ip, udp = 14, 34
	header := w.frame[ip:udp]
	for range n {
		w.sent++
		header[13] = byte(w.sent >> 16) // the second byte of the sender
		binary.BigEndian.PutUint16(w.frame[udp:], uint16(w.sent))
		binary.BigEndian.PutUint16(w.frame[udp+6:], 0) // no checksum
		binary.BigEndian.PutUint16(header[10:], 0)
		sum := uint32(0)
		for i := 0; i < len(header); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(header[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(header[10:], ^uint16(sum>>16+sum))
		if err := unix.Sendto(w.socket, w.frame, 0, w.to); err != nil {
			t.Errorf("sending: %v", err)
			return
		}
	}
}

// during calls the function what repeatedly in the background, until the test ends.
func during(t *testing.T, what func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				what()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}
