// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// portForwards are the ways in which hosts translate destinations, as shell scripts. Each publishes the host's ports 8080, 8081 and 8082, for TCP and
// UDP, as ports 80, 81 and 80 of a server behind the host. Each also redirects 8084 to the host's port 84, and masquerades the server's own
// connections.
var portForwards = map[string]string{
	"nft": `nft -f - <<end
table inet translate {
	chain pre {
		type nat hook prerouting priority dstnat
		iifname fw0 meta nfproto ipv4 meta l4proto { tcp, udp } th dport { 8080, 8082 } dnat ip to 10.9.0.2:80
		iifname fw0 meta nfproto ipv4 meta l4proto { tcp, udp } th dport 8081 dnat ip to 10.9.0.2:81
		iifname fw0 meta nfproto ipv6 meta l4proto { tcp, udp } th dport { 8080, 8082 } dnat ip6 to [fd09::2]:80
		iifname fw0 meta nfproto ipv6 meta l4proto { tcp, udp } th dport 8081 dnat ip6 to [fd09::2]:81
		iifname fw0 meta l4proto { tcp, udp } th dport 8084 redirect to :84
	}
	chain post {
		type nat hook postrouting priority srcnat
		oifname fw0 masquerade
	}
}
end`,
	"iptables": `for tables in "iptables 10.9.0.2" "ip6tables [fd09::2]"; do set -- $tables
for p in tcp udp; do
$1 -t nat -A PREROUTING -i fw0 -p $p -m multiport --dports 8080,8082 -j DNAT --to-destination $2:80
$1 -t nat -A PREROUTING -i fw0 -p $p --dport 8081 -j DNAT --to-destination $2:81
$1 -t nat -A PREROUTING -i fw0 -p $p --dport 8084 -j REDIRECT --to-ports 84; done
$1 -t nat -A POSTROUTING -o fw0 -j MASQUERADE; done`,
	"docker": `for tables in "iptables 10.9.0.2 10.9.0.0/24" "ip6tables [fd09::2] fd09::/64"; do set -- $tables
$1 -t nat -N DOCKER; $1 -N DOCKER; $1 -P FORWARD DROP
$1 -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
$1 -t nat -A POSTROUTING -s $3 ! -o srv0 -j MASQUERADE
for p in tcp udp; do for port in 8080:80 8082:80 8081:81; do
$1 -t nat -A DOCKER ! -i srv0 -p $p -m $p --dport ${port%:*} -j DNAT --to-destination $2:${port#*:}; done
$1 -t nat -A DOCKER ! -i srv0 -p $p --dport 8084 -j REDIRECT --to-ports 84; done
$1 -A FORWARD -o srv0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$1 -A FORWARD -i srv0 -j ACCEPT; $1 -A FORWARD -o srv0 -j DOCKER
for p in tcp udp; do for port in 80 81; do $1 -A DOCKER ! -i srv0 -o srv0 -p $p -m $p --dport $port -j ACCEPT; done; done; done`,
}

// natPolicies are policies that open the published port 8080 and the redirected port 8084. They do not open the ports 8081, 8082, 80 (IPv4 and IPv6)
// and 84. NAT may translate a packet to a port or an address that the policy passes. That alone must not let the packet pass.
var natPolicies = map[string]string{
	"services": `services:
  - {name: app, port: [8080, 8084]}
  - {name: answers, port: 32768-60999}
`,
	"services and state": `rules:
  - {name: known, state: [established, related], then: pass}
services:
  - {name: app, port: [8080, 8084]}
  - {name: web, port: 81}
`,
	"rules by state": `sets:
  front: ["192.0.2.1", "2001:db8::1"]
  many: {file: many.txt}
rules:
  - {name: known, state: [established, related], then: pass}
  - {name: inner, to: [10.9.0.0/24, "fd09::/64"], port: [80, 81, 443], then: pass}
  - {name: closed, not: {to: local}, proto: [tcp, udp], then: drop}
  - {name: others, not: {to: $many}, proto: [tcp, udp], then: drop}
  - {name: published, state: new, to: $front, port: 8080, then: pass}
  - {name: redirected, state: new, to: local, port: [8084, 9000-9010], then: pass}
`,
}

// TestTranslated connects to ports of a host that forwards connections to a server behind it. It does so on each target with each way of translation.
// At every stage, a policy must decide by the address and the port to which the client connected.
func TestTranslated(t *testing.T) {
	for forward := range portForwards {
		t.Run(forward, func(t *testing.T) {
			if inside(t) {
				translated(t, forward)
			}
		})
	}
}

func translated(t *testing.T, forward string) {
	s := newNATSite(t, portForwards[forward])
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "198.18.%d.0/25\n", i)
	}
	writeFile(t, filepath.Join(dir, "many.txt"), many.String()+"192.0.2.1\n2001:db8::1\n")
	for name, text := range natPolicies {
		writeFile(t, file, "devices: [fw0]\ndefault: drop\n"+text)
		for _, target := range []string{"xdp", "nftables", "iptables"} {
			mustFloodwall(t, "apply", file, "--force", "--target", target)
			for _, network := range []string{"tcp", "udp"} {
				for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
					for port, want := range map[string]bool{"8080": true, "8084": true, "8081": false, "8082": false, "80": false, "84": false} {
						if err := s.connect(s.client, network, net.JoinHostPort(address, port), want); (err == nil) != want {
							t.Errorf("%s, %s: %s port %s of %s: %v, want an answer: %t", target, name, network, port, address, err, want)
						}
					}
				}
				for _, address := range []string{"192.0.2.2", "2001:db8::2"} {
					if err := s.connect(s.server, network, net.JoinHostPort(address, "7777"), true); err != nil {
						t.Errorf("%s, %s: the server behind the host by %s to %s: %v", target, name, network, address, err)
					}
				}
			}
		}
	}
	mustFloodwall(t, "unload")
}

// TestMasqueraded sends two datagrams from behind a masquerading host to a receiver that does not answer. For the second one, conntrack has already
// translated the source, but only the source. Its destination is not the host, so a rule with `to: local` must not match it.
func TestMasqueraded(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newNATSite(t, portForwards["nft"])
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, "devices: [fw0, srv0]\ndefault: pass\nrules:\n  - {name: known, state: [established, related], then: pass}\n"+
		"  - {name: own, to: local, port: udp/7778, then: drop}\n")
	var silent net.PacketConn
	s.client.Do(func() {
		var err error
		if silent, err = net.ListenPacket("udp", ":7778"); err != nil {
			t.Fatal(err)
		}
	})
	defer silent.Close()
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", file, "--force", "--target", target)
		for _, to := range []string{"192.0.2.2:7778", "[2001:db8::2]:7778"} {
			s.server.Do(func() {
				c, err := net.Dial("udp", to)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for i := range 2 {
					if _, err := c.Write([]byte("hello")); err != nil {
						t.Error(err)
					}
					silent.SetReadDeadline(time.Now().Add(answerTime(true)))
					if _, _, err := silent.ReadFrom(make([]byte, 10)); err != nil {
						t.Errorf("%s: datagram %d to %s: %v", target, i+1, to, err)
					}
				}
			})
		}
	}
	mustFloodwall(t, "unload")
}

// TestTranslationsSaid runs check, apply and explain on a host that publishes ports, with each way of translation. They must name the translated
// port, and the rule of the policy that matches this port. For a policy with a wrong port, they must name the rule with that port. Without NAT they
// must print nothing about NAT.
func TestTranslationsSaid(t *testing.T) {
	for forward, rules := range portForwards {
		t.Run(forward, func(t *testing.T) {
			if inside(t) {
				translationsSaid(t, rules)
			}
		})
	}
}

func translationsSaid(t *testing.T, rules string) {
	policy := func(name, services string) string {
		file := filepath.Join(t.TempDir(), name)
		writeFile(t, file, "devices: [fw0]\ndefault: drop\nservices:\n"+services)
		return file
	}
	right := policy("right.yaml", "  - {name: app, port: tcp/8080}\n  - {name: web, port: tcp/80}\n  - {name: alt, port: tcp/8084}\n")
	wrong := policy("wrong.yaml", "  - {name: web, port: tcp/81}\n")
	other := policy("other.yaml", "  - {name: web, port: [udp/8083, tcp/443]}\n")
	says := func(want bool, words string, args ...string) {
		t.Helper()
		out := mustFloodwall(t, args...)
		if got := strings.Contains(out, words); got != want {
			t.Errorf("floodwall %s: %q is said: %t, in\n%s", strings.Join(args, " "), words, got, out)
		}
	}
	packet := "tcp 192.0.2.2:40000 > 192.0.2.1:8080 S"
	says(false, "NAT", "check", right)
	says(false, "NAT", "explain", right, packet)
	newNATSite(t, rules)
	published := "this host sends on to 10.9.0.2:80 and [fd09::2]:80 what asks for "
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		args := []string{"apply", right, "--force", "--target", target}
		says(true, published, args...)
		says(true, "this host sends on to its own port 84 what asks for ", args...)
		says(true, "app ("+right+":4)", args...)
		says(false, "8081 (", args...)
		says(true, published, "explain", "--live", packet)
		says(false, "NAT", "explain", "--live", "udp 192.0.2.2:40000 > 192.0.2.1:8083")
	}
	says(true, published, "check", right)
	says(false, "conntrack has to see", "check", right)
	says(true, published, "explain", right, packet)
	for services, remedy := range map[string]string{
		"  - {name: app, port: [tcp/8080, tcp/443], track: false}\n":      "`track: false` of app (",
		"  - {name: web, port: tcp/443}\nuntracked: [{port: tcp/8080}]\n": "`untracked` (",
		"  - {name: web, port: tcp/443}\nuntracked: all\n":                "`untracked: all`",
	} {
		says(true, "conntrack has to see these packets, or nothing sends them on: take out "+remedy, "check", policy("untracked.yaml", services))
	}
	says(false, "conntrack has to see", "check", policy("untracked.yaml", "  - {name: app, port: tcp/443, track: false}\n"))
	says(true, "no rule names that port, and rules that name port 81 do not match these packets: web ("+wrong+":4)", "check", wrong)
	says(false, "NAT", "check", other)
	mustFloodwall(t, "unload")
}

// natSite is a host with a client in front of it, connected to fw0, and a server behind it.
type natSite struct{ client, server *testutil.Elsewhere }

func newNATSite(t *testing.T, forwards string) natSite {
	s := natSite{testutil.NewElsewhere(t), testutil.NewElsewhere(t)}
	testutil.Veth(t, "srv0", "srv1", "10.9.0.1/24", "fd09::1/64")
	script(t, "ip addr add 2001:db8::1/64 dev fw0 nodad; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n"+forwards)
	s.client.Take(t, "fw1")
	s.server.Take(t, "srv1")
	behind := func(where *testutil.Elsewhere, device, address, six, gateways string, ports ...int) {
		where.Do(func() {
			script(t, strings.NewReplacer("DEV", device, "ADDR", address, "SIX", six).Replace("ip link set lo up; ip link set DEV up; "+
				"ip addr add ADDR dev DEV; ip addr add SIX dev DEV nodad")+"\n"+gateways)
			for _, port := range ports {
				greet(t, fmt.Sprintf(":%d", port))
			}
		})
	}
	behind(s.client, "fw1", "192.0.2.2/24", "2001:db8::2/64", "", 7777)
	behind(s.server, "srv1", "10.9.0.2/24", "fd09::2/64", "ip route add default via 10.9.0.1; ip -6 route add default via fd09::1", 80, 81)
	testutil.WaitUp(t, "fw0")
	testutil.WaitUp(t, "srv0")
	for _, port := range []string{":80", ":84", ":8080", ":8082"} {
		greet(t, port)
	}
	return s
}

// greet starts a server that answers each connection and each datagram with a word.
func greet(t *testing.T, address string) {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { packets.Close() })
	go func() {
		for {
			_, from, err := packets.ReadFrom(make([]byte, 100))
			if err != nil {
				return
			}
			packets.WriteTo([]byte("welcome"), from)
		}
	}()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	testutil.Serve(t, l, func(c net.Conn) { c.Write([]byte("welcome")) })
}

// script runs a shell script.
func script(t *testing.T, text string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", text).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", text, err, out)
	}
}

// connect reads the word of greet from an address. If the connection must fail, it waits only briefly.
func (s natSite) connect(from *testutil.Elsewhere, network, address string, wait bool) (err error) {
	from.Do(func() { err = askFor("", network, address, answerTime(wait)) })
	return err
}
