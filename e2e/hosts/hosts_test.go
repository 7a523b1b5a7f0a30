// SPDX-License-Identifier: Apache-2.0

package hosts

// host is a row of the table: a host to test.
type host struct {
	name  string // a word or two: also the name of the test
	guest bool   // the host needs modules that a kernel may lack; scripts/kernels runs it on Debian's kernels

	places string // namespaces in addition to host and out
	make   string // a script that makes the host, after base; each place is a command that runs another command in it
	rules  string // a script that sets rules of other programs; it also runs at each boot
	saved  string // a script that saves the kernel's rules to $saved before a reboot, through the filter `without` that apply names
	// stored is a script that restores these rules before Floodwall starts.
	stored string
	enter  string // the command that runs a process on the host; "" if the test itself runs there

	policy  string // "": the policy that init writes
	flags   string // the flags of init
	refuses string // a regular expression; if the output of apply matches it, apply may fail, because Floodwall cannot work here
	cannot  string // the same for each target except auto; if apply does not fail, the target filters in part
	says    string // a regular expression that the output of apply must match
	remedy  string // the same on nftables and iptables; the first group is the remedy, a command that the test then runs
	also    string // targets that the short form runs beside auto, in place of the one that differs from row to row
	keeps   string // the reason why programs stay in the kernel; the test then does not look for them
	public  bool   // the row has public addresses in place of those for documentation
	serves  string // the listeners before init: "host tcp/22 udp/53; out tcp/80"
	later   string // the listeners that are added after init
	flood   string // the address and port to which floods of 20,000 SYNs a second and more are sent while questions are asked
	// asks are questions, one a line: who, protocol, address, and served, bulk (much data both ways), heard (received), closed, shut (even without
	// Floodwall), refused (a reset or an ICMP error answers), or cookie (a SYN-ACK answers though nobody listens: on the target xdp).
	asks string
}

// base makes the common part of all hosts: an uplink with the kernel's defaults. It leads to a router and the rest of the world.
const base = `
cable host eth0 out eth0
host ip addr add 192.0.2.1/24 dev eth0; host ip addr add 2001:db8::1/64 dev eth0 nodad
out ip addr add 192.0.2.9/24 dev eth0; out ip addr add 2001:db8::9/64 dev eth0 nodad
for a in 203.0.113.9 198.51.100.77; do out ip addr add $a/32 dev lo; done
host ip route add default via 192.0.2.9; out ip route add 224.0.0.0/4 dev eth0
`

// baseServes and baseLater are the listeners of all hosts. baseAsks are the questions to these.
const (
	baseServes = "host tcp/22 tcp/80 udp/5000; out tcp/80 udp/53 tcp/53"
	baseLater  = "host udp/9999 tcp/9999"
	baseAsks   = `
	out udp 192.0.2.1:9999 closed
	out tcp 192.0.2.1:9999 closed
	out tcp 192.0.2.1:22 served
	out udp 192.0.2.1:5000 served
	out tcp [2001:db8::1]:80 served
	out tcp 192.0.2.1:80 bulk
	host udp 203.0.113.9:53 served
	host tcp 203.0.113.9:80 bulk
`
)

// plainPolicy is the common part of the policies that rows have of their own. A row adds its devices, and the keys that it tests.
const plainPolicy = `default: drop
sets: {bans: {dynamic: true, max: 1000, timeout: 1h}}
services: [{name: ssh, port: tcp/22}, {name: web, port: tcp/80}, {name: game, port: udp/5000}]
`

// bans is a rule that drops packets from the set of plainPolicy. It is for rows that have no other rules.
const bans = "rules: [{name: banned, from: $bans, then: drop}]\n"

var hosts = []host{
	{name: "plain veth", flood: "192.0.2.1:80"},
	{
		name: "unprivileged container",
		// The user of the container has all rights in namespaces of its own, and no rights for BPF.
		enter:   "unshare --user --map-root-user --net --mount",
		refuses: "unprivileged|user namespace",
	},
	{
		name: "Docker", places: "web",
		make: `
host sysctl -qw net.ipv4.ip_forward=1
host ip link add docker0 type bridge; host ip addr add 172.17.0.1/16 dev docker0; host ip link set docker0 up
host sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
cable host veth1 web eth0
host ip link set veth1 master docker0
web ip addr add 172.17.0.2/16 dev eth0; web ip route add default via 172.17.0.1`,
		rules: `
host iptables-nft-restore --noflush <<END # it adds, as Docker does
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
END`,
		serves: "web tcp/80",
		asks: `
	out tcp 192.0.2.1:8080 bulk
	web udp 203.0.113.9:53 served
	web tcp 203.0.113.9:80 bulk
	web tcp 172.17.0.1:80 served`,
	},
	{
		name:   "keepalived", // VRRP, and OSPF by another program of the same pair of routers
		serves: "host raw/112@224.0.0.18 raw/89@224.0.0.5; out raw/112@224.0.0.18",
		later:  "host raw/103@224.0.0.13",
		asks: `
	out raw/103 224.0.0.13 closed
	out raw/112 224.0.0.18 heard
	out raw/89 224.0.0.5 heard
	host raw/112 224.0.0.18 heard`,
	},
	{
		name: "VPN by tun", // a device without Ethernet headers, whose packets a UDP socket carries
		make: `
tunnel host tun0 51820 out tun0 192.0.2.1:51820
host ip addr add 10.9.0.1/24 dev tun0; out ip addr add 10.9.0.2/24 dev tun0`,
		cannot: "no Ethernet header",
		policy: "devices: [eth0, tun0]\n" + plainPolicy + "rules: [{name: banned, from: $bans, then: drop}, {name: carrier, port: udp/51820, then: pass}]\n",
		asks: `
	out udp 10.9.0.1:9999 closed
	out tcp 10.9.0.1:80 bulk
	out udp 10.9.0.1:5000 served
	host udp 10.9.0.2:53 served`,
	},
	{
		name: "two uplinks", // the answer to a packet that left by one uplink comes by the other
		make: `
cable host eth1 out eth1
host ip addr add 198.18.0.1/24 dev eth1; out ip addr add 198.18.0.9/24 dev eth1; out ip addr add 203.0.113.10/32 dev lo
host ip route add default via 198.18.0.9 metric 10
for place in host out; do $place sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0; done
host ip route add 203.0.113.10 via 192.0.2.9 src 198.18.0.1`,
		asks: `
	out udp 198.18.0.1:9999 closed
	out tcp 198.18.0.1:80 bulk
	host tcp 203.0.113.10:80 bulk
	host udp 203.0.113.10:53 served`,
	},
	{
		name: "bridge with guests", places: "guest",
		make: `
host ip link add br0 type bridge; host ip link set eth0 master br0
host ip addr flush dev eth0; host ip addr add 192.0.2.1/24 dev br0; host ip addr add 2001:db8::1/64 dev br0 nodad; host ip link set br0 up
host ip route add default via 192.0.2.9
cable host vnet0 guest eth0
host ip link set vnet0 master br0
host sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 # as Docker leaves it
guest ip addr add 192.0.2.20/24 dev eth0; guest ip route add default via 192.0.2.9`,
		cannot: "the driver has no native XDP", // the driver of a bridge
		remedy: "br_netfilter is on .*`(sysctl -w [^`]*)` leaves it to the bridge",
		serves: "guest tcp/80 udp/7777",
		asks: `
	out udp 192.0.2.20:7777 served
	out tcp 192.0.2.20:80 bulk
	guest udp 203.0.113.9:53 served
	guest tcp 192.0.2.1:80 served`,
	},
	{
		name:   "client of AD, SNMP and NFS", // the answers come from ports that a check treats as reflectors
		policy: "devices: [eth0]\nchecks: strict\n" + plainPolicy + bans,
		serves: "out udp/161 udp/389 udp/137 udp/111 udp/69 udp/623 udp/427 udp/5683 udp/1900 tcp/389 tcp/111 tcp/2049",
		asks: `
	host udp 192.0.2.9:161 served
	host udp 192.0.2.9:389 served
	host udp 192.0.2.9:137 served
	host udp 192.0.2.9:111 served
	host udp 192.0.2.9:69 served
	host udp 192.0.2.9:623 served
	host udp 192.0.2.9:427 served
	host udp 192.0.2.9:5683 served
	host udp 192.0.2.9:1900 served
	host tcp 192.0.2.9:389 served
	host tcp 192.0.2.9:111 served
	host tcp 192.0.2.9:2049 bulk`,
	},
	{
		name: "cloud instance", // its metadata service and its resolver have addresses that the Internet does not route
		make: `
host ip addr add 10.0.0.1/24 dev eth0; out ip addr add 10.0.0.2/24 dev eth0
out ip addr add 169.254.169.254/32 dev lo`,
		public: true, // addresses for documentation are bogons themselves
		policy: "devices: [eth0]\nchecks: {bogon-source: on}\n" + plainPolicy + bans,
		says:   `bogon-source drops what begins there: 10\.0\.0\.0/24 `,
		asks: `
	out udp 10.0.0.1:5000 closed
	host tcp 169.254.169.254:80 served
	host udp 169.254.169.254:53 served
	host udp 10.0.0.2:53 served`,
	},
	{
		name:   "resolver",
		serves: "host udp/53 tcp/53",
		asks: `
	out udp 192.0.2.1:53 served
	out udp [2001:db8::1]:53 served
	out tcp 192.0.2.1:53 served
	host tcp 203.0.113.9:53 served`,
	},
	{
		name: "5,000 addresses", // as with kube-proxy in mode ipvs
		make: `
seq 0 4999 | awk '{print "addr add 10.96." int($1/250) "." $1%250+1 "/32 dev lo"}' | host ip -batch -
host ip route add local 198.18.7.0/24 dev lo # AnyIP: an own address by a route alone
for p in 10.96.0.0/16 198.18.7.0/24; do out ip route add $p via 192.0.2.1; done`,
		policy: "devices: [eth0]\n" + plainPolicy + `rules:
  - {name: banned, from: $bans, then: drop}
  - {name: own, to: local, port: udp/7000, then: pass}
`,
		serves: "host udp/7000",
		asks: `
	out udp 192.0.2.1:7000 served
	out udp 10.96.0.1:7000 served
	out udp 10.96.19.250:7000 served
	out udp 198.18.7.7:7000 served
	out udp 198.18.7.7:9999 closed
	out udp 10.96.19.250:9999 closed`,
	},
	{
		name: "rules saved by iptables", rules: operatorsRules,
		saved:  `host iptables-save | without >$saved`,
		stored: `host iptables-restore <$saved`,
		asks:   operatorsAsks, serves: "host tcp/2222",
	},
	{
		name: "rules saved by nft", rules: operatorsRules,
		saved:  `{ echo flush ruleset; host nft list ruleset | without; } >$saved`,
		stored: `host nft -f $saved`,
		asks:   operatorsAsks, serves: "host tcp/2222",
	},
	{
		name: "multicast behind a snooping switch", // the switch forgets members that do not answer its queries
		make: `host ip maddr show dev eth0 >/dev/null`, serves: "host udp/5004@239.1.2.3",
		asks: `
	out udp 239.1.2.3:5004 heard
	out query 239.1.2.3 heard`,
	},
	{
		name: "GRE, IPIP and SIT", guest: true, // devices without Ethernet headers
		make: `
for p in host out; do
	case $p in host) own=192.0.2.1 peer=192.0.2.9 n=1 ;; out) own=192.0.2.9 peer=192.0.2.1 n=2 ;; esac
	i=0
	for kind in gre ipip sit; do
		i=$((i+1))
		$p ip link add ${kind}1 type $kind local $own remote $peer
		$p ip link set ${kind}1 up
		[ $kind = sit ] || $p ip addr add 10.9.$i.$n/24 dev ${kind}1
	done
	$p ip addr add 2001:db8:9::$n/64 dev sit1 nodad
done`,
		cannot: "no Ethernet header",
		flags:  "--device eth0 --device gre1 --device ipip1 --device sit1", // the policy that init writes passes the tunnels' own packets
		asks: `
	out udp 10.9.1.1:9999 closed
	out udp 10.9.2.1:9999 closed
	out udp [2001:db8:9::1]:9999 closed
	out tcp 10.9.1.1:80 bulk
	out tcp 10.9.2.1:80 served
	out tcp [2001:db8:9::1]:80 served
	host udp 10.9.1.2:53 served
	host udp 10.9.2.2:53 served`,
	},
	{
		name: "VLAN on a bond", guest: true,
		make: `
host ip link add bond0 type bond mode active-backup miimon 100
host ip link set eth0 down; host ip addr flush dev eth0; host ip link set eth0 master bond0; host ip link set bond0 up
host ip addr add 192.0.2.1/24 dev bond0; host ip addr add 2001:db8::1/64 dev bond0 nodad; host ip route add default via 192.0.2.9
for p in host out; do
	case $p in host) below=bond0 n=1 ;; out) below=eth0 n=9 ;; esac
	$p ip link add link $below name $below.5 type vlan id 5; $p ip link set $below.5 up
	$p ip addr add 198.18.5.$n/24 dev $below.5
done`,
		flags: "--device bond0",
		keeps: "bond", // its driver does not release a program in native mode that another one replaced
		asks: `
	out udp 198.18.5.1:9999 closed
	out tcp 198.18.5.1:80 bulk
	out udp 198.18.5.1:5000 served
	host udp 198.18.5.9:53 served`,
	},
	{
		name: "VRF", guest: true, // at later hooks its packets belong to another device
		cannot: "device eth0 is a port of vrf red, and netfilter knows .*: default, .*; name red in `devices` in its place",
		make: `
host ip link add red type vrf table 10; host ip link set red up; host ip link set eth0 master red
host ip addr add 2001:db8::1/64 dev eth0 nodad || true
host ip route add default via 192.0.2.9 table 10; host ip route add default via 192.0.2.9 dev eth0
host sysctl -qw net.ipv4.tcp_l3mdev_accept=1 net.ipv4.udp_l3mdev_accept=1 net.ipv4.raw_l3mdev_accept=1`,
	},
	{
		name: "WireGuard", guest: true,
		make: `
own=$(wg genkey) peer=$(wg genkey)
host ip link add wg0 type wireguard; out ip link add wg0 type wireguard
host wg set wg0 listen-port 51820 private-key <(echo $own) peer $(echo $peer | wg pubkey) allowed-ips 10.9.0.2/32
out wg set wg0 private-key <(echo $peer) peer $(echo $own | wg pubkey) allowed-ips 10.9.0.1/32 endpoint 192.0.2.1:51820 persistent-keepalive 1
host ip addr add 10.9.0.1/24 dev wg0; out ip addr add 10.9.0.2/24 dev wg0
host ip link set wg0 up; out ip link set wg0 up`,
		flags:  "--device eth0 --device wg0", // the policy that init writes passes the tunnel's own packets
		cannot: "no Ethernet header",
		asks: `
	out udp 10.9.0.1:9999 closed
	out tcp 10.9.0.1:80 bulk
	out udp 10.9.0.1:5000 served
	host udp 10.9.0.2:53 served`,
	},
	{
		name: "IPsec by policies", guest: true, // decrypted packets come once more by the same device
		make: `
host ip addr add 10.1.0.1/32 dev lo; out ip addr add 10.2.0.2/32 dev lo
host ip route add 10.2.0.2 via 192.0.2.9 src 10.1.0.1; out ip route add 10.1.0.1 via 192.0.2.1 src 10.2.0.2
secret=0x000102030405060708090a0b0c0d0e0f
for p in host out; do
	for way in "192.0.2.1 192.0.2.9 10.1.0.1 10.2.0.2" "192.0.2.9 192.0.2.1 10.2.0.2 10.1.0.1"; do
		set -- $way
		$p ip xfrm state add src $1 dst $2 proto esp spi 0x101 reqid 1 mode tunnel \
			auth-trunc 'hmac(sha256)' ${secret}101112131415161718191a1b1c1d1e1f 128 enc 'cbc(aes)' $secret
		dir=in
		case $p$1 in host192.0.2.1 | out192.0.2.9) dir=out ;; esac
		$p ip xfrm policy add src $3 dst $4 dir $dir tmpl src $1 dst $2 proto esp reqid 1 mode tunnel
	done
done`,
		// In the tunnel no port is expected to be closed, because XDP in native mode sees only the encrypted packets.
		asks: `
	out tcp 10.1.0.1:80 bulk
	out udp 10.1.0.1:5000 served
	host udp 10.2.0.2:53 served`,
	},
	everyDevice(),
	xfrmDevice(),
}

// operatorsRules are the operator's own rules. They close a port that the policy opens.
const operatorsRules = `
host iptables-restore <<END
*filter
:INPUT ACCEPT [0:0]
-A INPUT -p tcp -m tcp --dport 2222 -s 203.0.113.0/24 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 2222 -j DROP
COMMIT
END`

const operatorsAsks = `
	out tcp 192.0.2.1:2222 shut
`
