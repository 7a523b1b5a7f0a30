// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"strings"
	"testing"
)

// TestAnnounces loads SYNPROXY rules. Some announce the TCP options of the server behind them, and some announce different options.
func TestAnnounces(t *testing.T) {
	if !furnished(t, "nft", "iptables-nft", "sysctl") {
		return
	}
	sh(t, "ip addr add 2001:db8::1/64 dev fw0 nodad")
	for address, network := range map[string]string{"0.0.0.0:80": "tcp4", "[::]:8080": "tcp", "192.0.2.1:443": "tcp", "127.0.0.1:9000": "tcp"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	sh(t, "sysctl -qw net.ipv4.tcp_rmem='4096 131072 6291456'") // results in a window scale of 7
	rule := func(tool, port, options string) string {
		return tool + " -A INPUT -p tcp --dport " + port + " -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY " + options
	}
	nft := func(hook, test, options string) string {
		return "nft 'table inet x { chain in { type filter hook " + hook + " priority 0; " + test + " ct state invalid,untracked synproxy " + options + "; }; }'"
	}
	const good = "--sack-perm --timestamp --wscale 7 --mss 1460"
	for _, tt := range []struct {
		name, setup, back string
		severity          Severity
		evidence, remedy  string
	}{
		{"its options", rule("iptables-nft", "80", good), "", OK, "announces what its server does not have", ""},
		{"its options, one address", rule("iptables-nft", "443", good), "", OK, "", ""},
		{"its options, IPv6", rule("ip6tables-nft", "8080", "--sack-perm --timestamp --wscale 7 --mss 1440"), "", OK, "", ""},
		{"its options, both families", nft("input", "tcp dport 8080", "mss 1440 wscale 7 timestamp sack-perm"), "", OK, "", ""},
		{"MSS of IPv4 in IPv6", rule("ip6tables-nft", "8080", good), "", Warning, "MSS 1460, and the server.s is 1440 ", "the rule must have --mss 1440"},
		{"large MSS", rule("iptables-nft", "80", "--wscale 7 --mss 8960"), "", Warning, `MSS 8960, and the server.s is 1460 \(the MTU 1500 by fw0\)`, "the rule must have --mss 1460"},
		{"small MSS", rule("iptables-nft", "443", "--wscale 7 --mss 536"), "", Note, "MSS 536, and", "the rule must have --mss 1460"},
		{"large scale", nft("input", "tcp dport 80", "mss 1460 wscale 9"), "", Warning, "window scale 9, and the server.s is 7", "the rule must have wscale 7"},
		{"small scale", nft("input", "tcp dport 80", "mss 1460 wscale 3"), "", Note, "window scale 3, and the server.s is 7", "the rule must have wscale 7"},
		{"buffers of 32 MB", "sysctl -qw net.ipv4.tcp_rmem='4096 131072 33554432'; " + rule("iptables-nft", "80", good), "sysctl -qw net.ipv4.tcp_rmem='4096 131072 6291456'",
			Note, "window scale 7, and the server.s is 10", "the rule must have --wscale 10"},
		{"advmss", "ip route change 192.0.2.0/24 dev fw0 src 192.0.2.1 advmss 900; " + rule("iptables-nft", "80", good), "ip route change 192.0.2.0/24 dev fw0 src 192.0.2.1",
			Warning, `MSS 1460, and the server.s is 900 \(the route.s advmss by fw0\)`, "the rule must have --mss 900"},
		{"the default route", "ip link set fw1 mtu 1400; ip link set fw0 mtu 1400; ip route add default dev fw0; " + rule("iptables-nft", "80", good),
			"ip route del default; ip link set fw0 mtu 1500; ip link set fw1 mtu 1500", Warning, `is 1360 \(the MTU 1400`, "--mss 1360"},
		{"no timestamps", "sysctl -qw net.ipv4.tcp_timestamps=0; " + rule("iptables-nft", "80", good), "sysctl -qw net.ipv4.tcp_timestamps=1",
			Warning, "timestamp, and net.ipv4.tcp_timestamps is 0", "no --timestamp"},
		{"nobody listens", rule("iptables-nft", "81", good), "", Note, "no socket of this host listens at", "on the server"},
		{"only loopback listens", rule("iptables-nft", "9000", good), "", Note, "no socket of this host listens at", "on the server"},
		{"a server behind", nft("forward", "tcp dport 80", "mss 1460 wscale 9"), "", Note, "servers behind this host", "on the server"},
		{"by a chain", "iptables-nft -N WEB; iptables-nft -A INPUT -p tcp --dport 80 -j WEB; iptables-nft -A WEB -p tcp -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --mss 2000",
			"", Warning, "MSS 2000", "--mss 1460"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sh(t, "nft flush ruleset; "+tt.setup)
			f := expect(t, "synproxy-announces", tt.severity, tt.evidence)
			if !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("remedy %q, want %q", f.Remedy, tt.remedy)
			}
			sh(t, "nft flush ruleset; "+tt.back)
		})
	}
}
