// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// onHost makes a host at 192.0.2.1 and another one in the network namespace "out". Between both is WireGuard of the kernel. IPVS sends port 8090 on to
// a server in the network namespace "back".
const onHost = `alias ip=/bin/ip # not the one of busybox
ip netns add out
ip link add fw0 type veth peer name fw1 netns out
ip addr add 192.0.2.1/24 dev fw0; ip link set fw0 up; ip route add default via 192.0.2.254
ip -n out addr add 192.0.2.254/24 dev fw1; ip -n out link set fw1 up; ip -n out link set lo up
cd /tmp; umask 077; wg genkey >here; wg genkey >there
ip link add wg0 type wireguard; ip addr add 10.7.0.1/24 dev wg0
wg set wg0 listen-port 51820 private-key here peer $(wg pubkey <there) allowed-ips 10.7.0.2/32
ip link set wg0 up
ip netns add back
ip link add srv0 type veth peer name srv1 netns back
ip addr add 10.9.0.1/24 dev srv0; ip link set srv0 up
ip -n back addr add 10.9.0.2/24 dev srv1; ip -n back link set srv1 up; ip -n back route add default via 10.9.0.1
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
ip netns exec back nc -ll -p 80 -e cat </dev/null >/dev/null 2>&1 &
ipvsadm -A -t 192.0.2.1:8090 -s rr; ipvsadm -a -t 192.0.2.1:8090 -r 10.9.0.2:80 -m
`

// wireGuardPeer makes the device of the peer anew, so that it has to shake hands.
const wireGuardPeer = `alias ip=/bin/ip
cd /tmp
ip -n out link del wg0 2>/dev/null
ip -n out link add wg0 type wireguard; ip -n out addr add 10.7.0.2/24 dev wg0
ip netns exec out wg set wg0 private-key there peer $(wg pubkey <here) endpoint 192.0.2.1:51820 allowed-ips 10.7.0.1/32
ip -n out link set wg0 up`

// closesTunnel is a policy that opens SSH, and not the port of the tunnel.
const closesTunnel = "devices: [fw0]\ndefault: drop\nchecks: off\nservices: [{name: ssh, port: tcp/22}]\n"

// TestOn runs `floodwall on` on a host where the kernel serves without a program: WireGuard, IPVS, and SCTP, which has no ports for a policy. What was
// served must be served: a peer of WireGuard must still shake hands, and reach every port through the tunnel. From outside, a database must be closed.
func TestOn(t *testing.T) {
	testutil.RequireRoot(t)
	files := t.TempDir()
	Build(t, "./cmd/floodwall", filepath.Join(files, "bin/floodwall"))
	m := Start(t, Spec{
		Kernel: "6.12", Tools: []string{"ip", "ipvsadm", "nft", "wg"}, Files: files,
		Modules: []string{"veth", "wireguard", "udp_diag", "tcp_diag", "ip_vs", "ip_vs_rr", "sctp"}, Listen: []string{"tcp/22", "tcp/8080", "tcp/5432", "sctp/5000"},
	})
	m.Must(onHost)
	inside, outside := []string{"10.7.0.1 22", "10.7.0.1 8080", "10.7.0.1 5432"}, []string{"192.0.2.1 22", "192.0.2.1 8080", "192.0.2.1 8090"}
	const database = "192.0.2.1 5432"
	answers := func(when string, wanted ...string) {
		t.Helper()
		m.Must(wireGuardPeer)
		for _, at := range append(append(inside[:len(inside):len(inside)], outside...), database) {
			want := strings.Contains(strings.Join(wanted, ",")+",", at+",")
			is := false
			for began := time.Now(); !is && time.Since(began) < time.Minute; {
				is = strings.TrimSpace(m.Must("echo hello | /bin/ip netns exec out nc -w 3 "+at+" 2>/dev/null || true")) == "hello"
				if !want {
					break
				}
			}
			if is != want {
				t.Errorf("%s: %s answers: %v\n%s", when, at, is, m.Must("wg; floodwall status 2>&1 || true"))
			}
		}
	}
	open := append(append([]string{}, inside...), outside...)
	answers("before", append(open, database)...)

	m.Write("/tmp/closes.yaml", closesTunnel)
	out, code := m.Command("env", "SSH_CONNECTION=10.7.0.2 50000 10.7.0.1 22", "floodwall", "on", "--yes", "--policy", "/tmp/closes.yaml")
	if code != 1 || !strings.Contains(out, "comes through the tunnel wg0") {
		t.Errorf("a policy that closes the tunnel of the session: exit code %d\n%s", code, out)
	}
	out, code = m.Command("env", "SSH_CONNECTION=10.7.0.2 50000 10.7.0.1 22", "floodwall", "on", "--yes")
	t.Log(out)
	for _, part := range []string{"udp/51820\n", "tcp/8090 (by NAT, 10.9.0.2:80)\n", "{name: raw-132, proto: sctp, then: pass}", "wg0, a tunnel: no default route leads there", "closed     tcp/5432 (agent) listens and is closed", "you        10.7.0.2, by SSH to port 22", "confirmed: "} {
		if code != 0 || !strings.Contains(out, part) {
			t.Errorf("on: exit code %d, no %q", code, part)
		}
	}
	answers("after on", open...)
	if out := m.Must("floodwall explain --live 'proto=132 192.0.2.254 > 192.0.2.1'"); !strings.Contains(out, "raw-132") {
		t.Errorf("SCTP:\n%s", out)
	}
	if text := m.Must("cat /etc/floodwall/policy.yaml"); !strings.Contains(text, "port: udp/51820} # with `udp: {protect: wireguard}`") {
		t.Errorf("the policy proposes no protection for WireGuard:\n%s", text)
	}
	m.Must("floodwall off")
	answers("after off", append(open, database)...)
}
