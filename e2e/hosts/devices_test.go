// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// device is a kind of device, by which the host and the rest of the world have addresses. The policy names the device.
type device struct {
	name string // on the host
	out  string // the name at the other end, if it differs
	make string // a script for each end, in which $own and $peer are the ends of the uplink, and $own6 and $peer6 those of IPv6
	ip   string // the IP versions that the device carries
}

// devices are the kinds of devices that the row "every device" has beside a veth. Those with an Ethernet header have cables of their own, which the
// policy does not name, so that only the device itself filters. The packets of the others come by eth0, in other packets.
var devices = []device{
	{name: "tun0", ip: "46"},
	{name: "ppp0", ip: "46"},
	{name: "wg0", ip: "46"},
	{name: "gre1", ip: "46", make: "ip link add gre1 type gre local $own remote $peer"},
	{name: "ipip1", ip: "4", make: "ip link add ipip1 type ipip local $own remote $peer"},
	{name: "sit1", ip: "6", make: "ip link add sit1 type sit local $own remote $peer"},
	{name: "ip6tnl1", ip: "46", make: "ip link add ip6tnl1 type ip6tnl mode any local $own6 remote $peer6"},
	{name: "ip6gre1", ip: "46", make: "ip link add ip6gre1 type ip6gre local $own6 remote $peer6"},
	{name: "eth1.5", ip: "46", make: "ip link add link eth1 name eth1.5 type vlan id 5"},
	{name: "mv0", out: "eth1", ip: "46"},
	{name: "br0", out: "eth2", ip: "46"},
	{name: "bond0", out: "eth3", ip: "46"},
}

// makeDevices makes what the scripts of the devices need, and devices whose two ends differ. A dummy receives nothing, and drops what it sends.
// Packets to its address come by eth0.
const makeDevices = `
tunnel host tun0 51820 out tun0 192.0.2.1:51820
pppoe host eth0 out eth0
for n in 1 2 3; do cable host eth$n out eth$n; done
host sysctl -qw net.ipv4.conf.eth1.arp_ignore=1 # without it, eth1 answers for the address of mv0
host ip link add link eth1 name mv0 type macvlan mode bridge
host ip link add br0 type bridge; host ip link set eth2 master br0
host ip link add bond0 type bond mode active-backup miimon 100; host ip link set eth3 down; host ip link set eth3 master bond0
host ip link add dummy0 type dummy; host ip link set dummy0 up; host ip addr add 10.8.0.1/32 dev dummy0; out ip route add 10.8.0.1 via 192.0.2.1
own=$(wg genkey) peer=$(wg genkey)
host ip link add wg0 type wireguard; out ip link add wg0 type wireguard
host wg set wg0 listen-port 51821 private-key <(echo $own) peer $(echo $peer | wg pubkey) allowed-ips 0.0.0.0/0,::/0
out wg set wg0 private-key <(echo $peer) peer $(echo $own | wg pubkey) allowed-ips 0.0.0.0/0,::/0 endpoint 192.0.2.1:51821 persistent-keepalive 1
`

// everyDevice is the row with every kind of device that target xdp filters.
func everyDevice() host {
	h := deviceRow("every device", devices, makeDevices, deviceAsks+"out tcp HOST:81 cookie\n")
	h.policy = strings.Replace(h.policy, "devices: [", "devices: [dummy0, ", 1)
	h.also, h.cannot = "nftables iptables", "no Ethernet header|the driver has no native XDP"
	h.keeps = "bond" // its driver does not release a program in native mode that another one replaced
	h.asks += "out udp 10.8.0.1:9999 closed\n out tcp 10.8.0.1:80 served\n out tcp 10.8.0.1:81 cookie\n"
	return h
}

// makeStates makes the keys and the policies of IPsec for an xfrm interface with the number 5.
const makeStates = `
secret=0x000102030405060708090a0b0c0d0e0f
for p in host out; do
	for way in "192.0.2.1 192.0.2.9" "192.0.2.9 192.0.2.1"; do
		set -- $way
		$p ip xfrm state add src $1 dst $2 proto esp spi 0x101 reqid 1 mode tunnel flag af-unspec if_id 5 \
			auth-trunc 'hmac(sha256)' ${secret}101112131415161718191a1b1c1d1e1f 128 enc 'cbc(aes)' $secret
		dir=in
		case $p$1 in host192.0.2.1 | out192.0.2.9) dir=out ;; esac
		for any in 0.0.0.0/0 ::/0; do
			$p ip xfrm policy add src $any dst $any dir $dir if_id 5 tmpl src $1 dst $2 proto esp reqid 1 mode tunnel
		done
	done
done
`

// xfrmDevice is the row with an xfrm interface. For it, auto takes the target nftables.
func xfrmDevice() host {
	list := []device{{name: "xfrm1", ip: "46", make: "ip link add xfrm1 type xfrm dev eth0 if_id 5"}}
	h := deviceRow("IPsec by an interface", list, makeStates, deviceAsks)
	h.says = `xfrm1 \((nftables|iptables)\)`
	h.cannot = `device xfrm1: its packets \(xfrm\) may have the Ethernet header`
	h.also = "iptables"
	return h
}

// deviceRow returns a row whose policy names these devices. On each of them, ports are closed, services answer, the policy's resets and ICMP errors
// arrive, and the host gets replies to its own questions. In asks, HOST and OUT are the addresses of the two ends.
func deviceRow(name string, list []device, script, asks string) host {
	h := host{name: name, guest: true, serves: "host tcp/113 udp/113", make: script}
	var names []string
	for i, d := range list {
		names = append(names, d.name)
		h.make += d.script(i)
		for _, at := range d.addresses(i) {
			h.asks += strings.NewReplacer("HOST", at[0], "OUT", at[1]).Replace(asks)
		}
	}
	h.policy = "devices: [eth0, " + strings.Join(names, ", ") + "]\n" +
		strings.Replace(plainPolicy, "port: tcp/80", "port: [tcp/80, tcp/81], syn: always", 1) + `rules:
  - {name: banned, from: $bans, then: drop}
  - {name: tunnels, proto: [4, 41, gre, esp], then: pass}
  - {name: carriers, port: [udp/51820, udp/51821], then: pass}
  - {name: refused, port: 113, then: reject}
`
	return h
}

// deviceAsks are the questions by each device, for each IP version.
const deviceAsks = `
	out udp HOST:9999 closed
	out tcp HOST:9999 closed
	out tcp HOST:80 served
	out tcp HOST:113 refused
	out udp HOST:113 refused
	out udp HOST:5000 served
	host udp OUT:53 served
	host tcp OUT:80 served
`

// script returns commands that make the device with a number, and give addresses to both of its ends.
func (d device) script(number int) string {
	var b strings.Builder
	for n, end := range []struct{ place, name, own, peer string }{{"host", d.name, "1", "9"}, {"out", cmp.Or(d.out, d.name), "9", "1"}} {
		fmt.Fprintf(&b, "own=192.0.2.%s peer=192.0.2.%s own6=2001:db8::%[1]s peer6=2001:db8::%[2]s\n", end.own, end.peer)
		if d.make != "" {
			fmt.Fprintln(&b, end.place, d.make)
		}
		fmt.Fprintf(&b, "%s ip link set %s up\n", end.place, end.name)
		for _, at := range d.addresses(number) {
			length := "24"
			if strings.HasPrefix(at[n], "[") {
				length = "64 nodad"
			}
			fmt.Fprintf(&b, "%s ip addr add %s/%s dev %s\n", end.place, strings.Trim(at[n], "[]"), length, end.name)
		}
	}
	return b.String()
}

// addresses returns the addresses of the two ends of the device with a number, for each IP version.
func (d device) addresses(number int) (list [][2]string) {
	for _, version := range []struct{ digit, form string }{{"4", "10.9.%d.%d"}, {"6", "[2001:db8:9:%x::%d]"}} {
		if strings.Contains(d.ip, version.digit) {
			list = append(list, [2]string{fmt.Sprintf(version.form, number, 1), fmt.Sprintf(version.form, number, 2)})
		}
	}
	return list
}

// runs reports whether the short form of the row at an index of the table runs a target.
func (h host) runs(row, n int) bool {
	if n == 0 || h.also == "" {
		return n == 0 || n == 1+row%(len(targets)-1)
	}
	return slices.Contains(strings.Fields(h.also), targets[n].name)
}
