// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"testing"

	"github.com/floodwall/floodwall/test/subject"
)

// keyTests has packets that match and packets that do not match, for each form of each key of the language.
var keyTests = []struct{ name, policy, packets string }{
	{"from", `
sets: {office: [203.0.113.0/24, "2001:db8:1::/48", 198.51.100.7, 198.51.100.20-198.51.100.29], none: []}
rules:
  - {name: written, from: [192.0.2.0/25, "2001:db8:2::1"], then: drop}
  - {name: nobody, from: $none, then: drop}
  - {name: office, from: $office, then: pass}
  - {name: both, from: [$none, 100.64.0.0-100.64.0.6, 0.0.0.0], then: drop}
`, `
tcp 192.0.2.0:5 > 1.1.1.1:80 S        drop written
tcp 192.0.2.127:5 > 1.1.1.1:80 S      drop written
tcp 192.0.2.128:5 > 1.1.1.1:80 S      pass default
tcp 1.1.1.1:5 > 192.0.2.0:80 S        pass default
udp [2001:db8:2::1]:5 > [2001:db8::9]:80  drop written
udp [2001:db8:2::2]:5 > [2001:db8::9]:80  pass default
icmp 203.0.113.255 > 1.1.1.1          pass office
icmp 203.0.114.0 > 1.1.1.1            pass default
proto=47 2001:db8:1:ffff::1 > 2001:db8::9  pass office
proto=47 2001:db8:2:: > 2001:db8::9   pass default
tcp 198.51.100.7:5 > 1.1.1.1:80 .     pass office
tcp 198.51.100.8:5 > 1.1.1.1:80 .     pass default
tcp 198.51.100.19:5 > 1.1.1.1:80 .    pass default
tcp 198.51.100.20:5 > 1.1.1.1:80 .    pass office
tcp 198.51.100.29:5 > 1.1.1.1:80 .    pass office
tcp 198.51.100.30:5 > 1.1.1.1:80 .    pass default
udp 100.64.0.6:5 > 1.1.1.1:5          drop both
udp 100.64.0.7:5 > 1.1.1.1:5          pass default
udp 0.0.0.0:5 > 1.1.1.1:5             drop both
udp [::]:5 > [2001:db8::9]:5          pass default
udp [::ffff:192.0.2.1]:5 > [2001:db8::9]:5  pass default # mapped addresses are IPv6
udp 192.0.2.1:5 > 1.1.1.1:5 frag=later  drop written
arp 192.0.2.1 > 1.1.1.1               pass not-ip
`},
	{"to", `
default: drop
sets: {servers: [192.0.2.0/30, "2001:db8::/64"]}
rules:
  - {name: servers, to: $servers, then: pass}
  - {name: pair, from: 8.8.8.8, to: 9.9.9.9, then: pass}
  - {name: any4, to: 0.0.0.0/0, from: 7.0.0.0/8, then: drop}
`, `
tcp 8.8.8.8:5 > 192.0.2.3:80 S        pass servers
tcp 8.8.8.8:5 > 192.0.2.4:80 S        drop default
tcp 192.0.2.3:5 > 8.8.8.8:80 S        drop default
tcp [2001:db8:1::1]:5 > [2001:db8::5]:80 S  pass servers
tcp [2001:db8::5]:5 > [2001:db8:1::1]:80 S  drop default
udp 8.8.8.8:5 > 9.9.9.9:53            pass pair
udp 9.9.9.9:5 > 8.8.8.8:53            drop default
udp 7.1.1.1:5 > 8.8.8.8:53            drop any4
udp 7.1.1.1:5 > 192.0.2.1:53          pass servers
`},
	{"sets nested and overlapping", `
sets:
  wide: [10.0.0.0/8, "2001:db8::/32"]
  inner: [10.1.0.0/16, 10.1.2.3, "2001:db8:1::/48", "2001:db8:1:2::3"]
  one: [10.1.2.3, "2001:db8:1:2::3"]
rules:
  - {name: one, from: $one, to: $one, then: drop}
  - {name: hole, from: $wide, not: {from: $inner}, then: drop}
  - {name: inner, from: $inner, not: {from: $one}, then: pass}
  - {name: rest, from: $wide, to: $wide, then: drop}
`, `
udp 10.1.2.3:5 > 10.1.2.3:5           drop one
udp 10.1.2.3:5 > 10.1.2.4:5           drop rest
udp 10.1.2.3:5 > 8.8.8.8:5            pass default
udp 10.1.2.2:5 > 8.8.8.8:5            pass inner
udp 10.1.0.0:5 > 8.8.8.8:5            pass inner
udp 10.2.0.0:5 > 8.8.8.8:5            drop hole
udp 10.0.255.255:5 > 8.8.8.8:5        drop hole
udp 11.0.0.0:5 > 8.8.8.8:5            pass default
udp [2001:db8:1:2::3]:5 > [2001:db8:1:2::3]:5  drop one
udp [2001:db8:1:2::3]:5 > [2001:db8::]:5       drop rest
udp [2001:db8:1:2::2]:5 > [2001:db8::]:5       pass inner
udp [2001:db8:2::]:5 > [2001:db8::]:5          drop hole
udp [2001:db9::]:5 > [2001:db8::]:5            pass default
`},
	{"proto", `
rules:
  - {name: tunnels, proto: [gre, 50, sctp], then: drop}
  - {name: tcp, proto: tcp, then: drop}
  - {name: ends, proto: [0, 255], then: drop}
`, `
gre 8.8.8.8 > 1.1.1.1                 drop tunnels
esp 2001:db8::1 > 2001:db8::2         drop tunnels
proto=132 8.8.8.8 > 1.1.1.1           drop tunnels
tcp 8.8.8.8:5 > 1.1.1.1:80 S          drop tcp
tcp [2001:db8::1]:5 > [2001:db8::2]:80 S ext=hbh,dst  drop tcp
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=later  drop tcp
tcp [2001:db8::1]:5 > [2001:db8::2]:80 S frag=later  drop tcp
udp 8.8.8.8:5 > 1.1.1.1:80            pass default
proto=255 8.8.8.8 > 1.1.1.1           drop ends
proto=0 8.8.8.8 > 1.1.1.1             drop ends
proto=254 8.8.8.8 > 1.1.1.1           pass default
`},
	{"port", `
rules:
  - {name: web, port: [tcp/80, tcp/443], then: pass}
  - {name: dns, port: 53, then: drop}
  - {name: high, port: udp/60000-65535, then: drop}
  - {name: low, port: tcp/0-9, then: drop}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S          pass web
tcp [2001:db8::1]:5 > [2001:db8::2]:443 S  pass web
udp 8.8.8.8:5 > 1.1.1.1:80            pass default
tcp 8.8.8.8:5 > 1.1.1.1:53 S          drop dns
udp 8.8.8.8:5 > 1.1.1.1:53            drop dns
udp 8.8.8.8:53 > 1.1.1.1:5            pass default
udp 8.8.8.8:5 > 1.1.1.1:59999         pass default
udp 8.8.8.8:5 > 1.1.1.1:60000         drop high
udp 8.8.8.8:5 > 1.1.1.1:65535         drop high
tcp 8.8.8.8:5 > 1.1.1.1:65535 S       pass default
tcp 8.8.8.8:5 > 1.1.1.1:0 S           drop low
tcp 8.8.8.8:5 > 1.1.1.1:9 S           drop low
tcp 8.8.8.8:5 > 1.1.1.1:10 S          pass default
icmp 8.8.8.8 > 1.1.1.1                pass default
tcp 8.8.8.8:5 > 1.1.1.1:53 S frag=first  drop dns
tcp 8.8.8.8:5 > 1.1.1.1:53 S frag=later  pass default
udp [2001:db8::1]:5 > [2001:db8::2]:53 frag=later  pass default
udp [2001:db8::1]:5 > [2001:db8::2]:53 ext=hbh,frag,dst  drop dns
`},
	{"sport", `
rules:
  - {name: reflected, sport: [udp/53, udp/123], then: drop}
  - {name: both, sport: 1000-1999, port: 2000-2999, then: drop}
`, `
udp 8.8.8.8:53 > 1.1.1.1:5            drop reflected
udp 8.8.8.8:123 > 1.1.1.1:5           drop reflected
tcp 8.8.8.8:53 > 1.1.1.1:5            pass default
udp 8.8.8.8:5 > 1.1.1.1:53            pass default
tcp 8.8.8.8:1000 > 1.1.1.1:2999       drop both
udp [2001:db8::1]:1999 > [2001:db8::2]:2000  drop both
udp 8.8.8.8:2000 > 1.1.1.1:2000       pass default
`},
	{"family", `
rules:
  - {name: six, family: ipv6, then: drop}
  - {name: any, family: [ipv4, ipv6], ttl: 1, then: drop}
  - {name: every, family: [ipv4, ipv6], fragment: [none, first, later], then: drop}
  - {name: more, ttl: 2, then: pass}
`, `
udp [2001:db8::1]:5 > [2001:db8::2]:53  drop six
udp 8.8.8.8:5 > 1.1.1.1:53            drop every
udp 8.8.8.8:5 > 1.1.1.1:53 ttl=1      drop any
udp 8.8.8.8:5 > 1.1.1.1:53 ttl=2      drop every
`},
	{"flags", `
rules:
  - {name: new, flags: "syn/fin,syn,rst,ack", then: drop}
  - {name: all, flags: "fin,urg,psh", then: drop}
  - {name: none, flags: none, then: drop}
  - {name: exact, flags: ["ack/fin,syn,rst,psh,ack,urg,ece,cwr", rst], then: pass}
  - {name: tcp, proto: tcp, then: drop}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S          drop new
tcp 8.8.8.8:5 > 1.1.1.1:80 SPUEW      drop new
tcp 8.8.8.8:5 > 1.1.1.1:80 S.         drop tcp
tcp 8.8.8.8:5 > 1.1.1.1:80 FPU        drop all
tcp 8.8.8.8:5 > 1.1.1.1:80 FSRPAUEW   drop all
tcp 8.8.8.8:5 > 1.1.1.1:80 FP         drop tcp
tcp 8.8.8.8:5 > 1.1.1.1:80 none       drop none
tcp 8.8.8.8:5 > 1.1.1.1:80 .          pass exact
tcp 8.8.8.8:5 > 1.1.1.1:80 P.         drop tcp
tcp [2001:db8::1]:5 > [2001:db8::2]:80 R.  pass exact
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=later  drop tcp
udp 8.8.8.8:5 > 1.1.1.1:80            pass default
`},
	{"icmp", `
rules:
  - {name: mtu, icmp: [icmp/3/4, icmpv6/2/0], then: pass}
  - {name: ping, icmp: echo-request, then: drop}
  - {name: six, icmp: [icmpv6/3, nd-redirect], then: drop}
  - {name: four, proto: icmp, then: drop}
`, `
icmp 8.8.8.8 > 1.1.1.1 type=3 code=4  pass mtu
icmp 8.8.8.8 > 1.1.1.1 type=3 code=3  drop four
icmpv6 2001:db8::1 > 2001:db8::2 type=2 code=0  pass mtu
icmpv6 2001:db8::1 > 2001:db8::2 type=2 code=1  pass default
icmp 8.8.8.8 > 1.1.1.1 echo-request   drop ping
icmpv6 2001:db8::1 > 2001:db8::2 echo-request code=9  drop ping
icmpv6 2001:db8::1 > 2001:db8::2 type=3 code=255  drop six
icmpv6 2001:db8::1 > 2001:db8::2 type=137  drop six
icmpv6 2001:db8::1 > 2001:db8::2 type=8  pass default
icmp 8.8.8.8 > 1.1.1.1 type=128       drop four
icmp 8.8.8.8 > 1.1.1.1 echo-request frag=later  drop four
proto=58 8.8.8.8 > 1.1.1.1 payload=0x8000000000000000  pass default # ICMPv6 is for IPv6 only
`},
	{"length", `
rules:
  - {name: small, length: 0-40, then: drop}
  - {name: sizes, length: [100, 200-300], then: drop}
  - {name: large, length: 1400-65535, then: drop}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 len=40      drop small
udp 8.8.8.8:5 > 1.1.1.1:5 len=41      pass default
udp 8.8.8.8:5 > 1.1.1.1:5 len=100     drop sizes
udp [2001:db8::1]:5 > [2001:db8::2]:5 len=100  drop sizes
udp 8.8.8.8:5 > 1.1.1.1:5 len=199     pass default
udp 8.8.8.8:5 > 1.1.1.1:5 len=300     drop sizes
udp [2001:db8::1]:5 > [2001:db8::2]:5 len=301  pass default
udp 8.8.8.8:5 > 1.1.1.1:5 len=1400 vlan=7  drop large
udp 8.8.8.8:5 > 1.1.1.1:5 totlen=65535  drop truncated
udp [2001:db8::1]:5 > [2001:db8::2]:5 totlen=65535  drop truncated
`},
	{"ttl", `
rules:
  - {name: ends, ttl: [0, 255], then: drop}
  - {name: near, ttl: 1-5, then: drop}
  - {name: gap, ttl: [20, 22, 23, 25-26, 24], then: pass}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=0       drop ends
udp [2001:db8::1]:5 > [2001:db8::2]:5 ttl=255  drop ends
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=1       drop near
udp [2001:db8::1]:5 > [2001:db8::2]:5 ttl=5  drop near
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=6       pass default
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=20      pass gap
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=21      pass default
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=22      pass gap
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=24      pass gap
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=27      pass default
`},
	{"dscp", `
rules:
  - {name: voice, dscp: [ef, 10-12], then: drop}
  - {name: ends, dscp: [63, cs0], then: pass}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 dscp=46     drop voice
udp [2001:db8::1]:5 > [2001:db8::2]:5 dscp=46  drop voice
udp 8.8.8.8:5 > 1.1.1.1:5 dscp=12     drop voice
udp 8.8.8.8:5 > 1.1.1.1:5 dscp=13     pass default
udp 8.8.8.8:5 > 1.1.1.1:5 dscp=63     pass ends
udp [2001:db8::1]:5 > [2001:db8::2]:5 pass ends
`},
	{"mss", `
rules:
  - {name: tiny, mss: [0-535, 600], then: drop}
  - {name: bare, mss: none, not: {port: 99}, then: drop}
  - {name: odd, proto: tcp, ttl: 9, not: {mss: [1460, none]}, then: drop}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=mss:535             drop tiny
tcp [2001:db8::1]:5 > [2001:db8::2]:80 S tcpopts=ts,mss:0  drop tiny
tcp 8.8.8.8:5 > 1.1.1.1:80 SA tcpopts=nop,nop,mss:600    drop tiny
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=mss:536             pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 . tcpopts=mss:100             pass default # no SYN
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=mss:1460,mss:100    pass default # the first counts
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=none                drop bare
tcp [2001:db8::1]:5 > [2001:db8::2]:80 SA tcpopts=sack,nop,nop  drop bare
tcp 8.8.8.8:5 > 1.1.1.1:99 S tcpopts=none                pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 . tcpopts=none                pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=eol,nop,nop,nop,mss:100  drop bare # behind the end
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=0205006400000000    drop bare # a length that the option does not have
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=0203640102040064    drop tiny # likewise, and one behind it
tcp 8.8.8.8:5 > 1.1.1.1:80 S ttl=9 tcpopts=mss:1460      pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 S ttl=9 tcpopts=mss:1400      drop odd
tcp 8.8.8.8:5 > 1.1.1.1:80 . ttl=9                       drop odd
tcp 8.8.8.8:5 > 1.1.1.1:80 S ttl=9 frag=later            drop odd
udp 8.8.8.8:5 > 1.1.1.1:80 ttl=9                         pass default
`},
	{"fragment", `
rules:
  - {name: first, fragment: first, then: drop}
  - {name: later, fragment: later, then: drop}
  - {name: whole, fragment: none, family: ipv6, then: drop}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 frag=first  drop first
udp 8.8.8.8:5 > 1.1.1.1:5 frag=later  drop later
udp 8.8.8.8:5 > 1.1.1.1:5 frag=8 mf   drop later
udp 8.8.8.8:5 > 1.1.1.1:5             pass default
udp [2001:db8::1]:5 > [2001:db8::2]:5 frag=first  drop first
udp [2001:db8::1]:5 > [2001:db8::2]:5 frag=later  drop later
udp [2001:db8::1]:5 > [2001:db8::2]:5  drop whole
udp [2001:db8::1]:5 > [2001:db8::2]:5 ext=frag  drop whole # an atomic fragment
`},
	{"fragment true", `
rules:
  - {name: parts, fragment: true, family: ipv4, then: drop}
  - {name: whole, fragment: false, then: drop}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 frag=first  drop parts
udp 8.8.8.8:5 > 1.1.1.1:5 frag=later  drop parts
udp 8.8.8.8:5 > 1.1.1.1:5             drop whole
udp [2001:db8::1]:5 > [2001:db8::2]:5 frag=first  pass default
`},
	{"vlan", `
rules:
  - {name: guests, vlan: [10, 100-200], then: drop}
  - {name: ends, vlan: [0, 4094], then: drop}
  - {name: untagged, vlan: none, ttl: 9, then: drop}
  - {name: tagged, vlan: any, ttl: 9, then: drop}
`, `
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=10     drop guests
udp [2001:db8::1]:5 > [2001:db8::2]:5 vlan=200,5  drop guests
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=5,10   pass default
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=201    pass default
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=0      drop ends
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=4094   drop ends
udp 8.8.8.8:5 > 1.1.1.1:5             pass default
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=9       drop untagged
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=9 vlan=4095  drop tagged
udp 8.8.8.8:5 > 1.1.1.1:5 ttl=9 vlan=1,0  drop tagged
udp 8.8.8.8:5 > 1.1.1.1:5 vlan=10,20,30  drop vlan-depth
`},
	{"not", `
sets: {office: [203.0.113.0/24, "2001:db8:1::/48"], servers: [192.0.2.0/24, "2001:db8::/64"]}
rules:
  - {name: foreign, to: $servers, not: {from: $office, proto: icmp}, port: 22, then: drop}
  - {name: odd-port, proto: tcp, not: {port: [80, 443], sport: 0-1023}, then: drop}
  - {name: not-new, proto: tcp, not: {flags: syn}, then: drop}
  - {name: not-ping, proto: [icmp, icmpv6], not: {icmp: echo-request, ttl: 255}, then: drop}
  - {name: no-tag, not: {vlan: any, to: $servers}, dscp: ef, then: drop}
  - {name: length, not: {length: 0-1000, fragment: first, dscp: 1-63}, then: drop}
`, `
tcp 8.8.8.8:5 > 192.0.2.1:22 S        drop foreign
tcp 203.0.113.9:5000 > 192.0.2.1:22 S drop odd-port
tcp 203.0.113.9:5 > 192.0.2.1:22 S    pass default
tcp 8.8.8.8:5000 > 192.0.2.1:80 S     pass default
tcp 8.8.8.8:5000 > 192.0.2.1:80 .     drop not-new
tcp 8.8.8.8:5000 > 192.0.2.1:81 .     drop odd-port
tcp 8.8.8.8:5 > 192.0.2.1:81 S        pass default
tcp 8.8.8.8:5000 > 192.0.2.1:80 S frag=later  drop odd-port
icmp 8.8.8.8 > 192.0.2.1              pass default
icmp 8.8.8.8 > 192.0.2.1 type=0       drop not-ping
icmp 8.8.8.8 > 192.0.2.1 type=0 ttl=255  pass default
icmpv6 2001:db8::1 > 2001:db8::2 frag=later  drop not-ping
udp 8.8.8.8:5 > 9.9.9.9:5 dscp=46     drop no-tag
udp 8.8.8.8:5 > 192.0.2.9:5 dscp=46   pass default
udp 8.8.8.8:5 > 9.9.9.9:5 dscp=46 vlan=3  pass default
udp 8.8.8.8:5 > 9.9.9.9:5 len=1001    drop length
udp 8.8.8.8:5 > 9.9.9.9:5 len=1001 frag=first  pass default
udp 8.8.8.8:5 > 9.9.9.9:5 len=1001 dscp=1  pass default
`},
	{"a key and its negation", `
rules:
  - {name: most, port: 1000-2000, not: {port: [udp/1500, tcp/1000-1001]}, then: drop}
  - {name: nothing, port: 80, not: {port: 1-65535}, then: drop}
  - {name: hole, from: 10.0.0.0/8, not: {from: [10.1.0.0/16, 10.2.0.0/16]}, then: drop}
`, `
udp 8.8.8.8:5 > 1.1.1.1:1500          pass default
tcp 8.8.8.8:5 > 1.1.1.1:1500          drop most
tcp 8.8.8.8:5 > 1.1.1.1:1001          pass default
udp 8.8.8.8:5 > 1.1.1.1:1001          drop most
udp 8.8.8.8:5 > 1.1.1.1:2001          pass default
tcp 8.8.8.8:5 > 1.1.1.1:80            pass default
tcp 10.1.0.1:5 > 1.1.1.1:80           pass default
tcp 10.3.0.1:5 > 1.1.1.1:80           drop hole
`},
	{"first match decides", `
default: drop
rules:
  - {name: a, from: 10.0.0.0/8, port: 80, then: pass}
  - {name: b, from: 10.0.0.0/8, then: drop}
  - {name: c, port: 80, then: pass}
  - {name: d, then: pass}
  - {name: e, then: drop}
services:
  - {name: s, port: 80}
`, `
tcp 10.0.0.1:5 > 1.1.1.1:80           pass a
tcp 10.0.0.1:5 > 1.1.1.1:81           drop b
tcp 11.0.0.1:5 > 1.1.1.1:80           pass c
tcp 11.0.0.1:5 > 1.1.1.1:81           pass d
udp [2001:db8::1]:5 > [2001:db8::2]:81  pass d
arp                                   pass not-ip
tcp 10.0.0.1:5 > 1.1.1.1:80 cut=30    drop truncated
`},
	{"services", `
default: drop
sets: {office: [203.0.113.0/24, "2001:db8:1::/48"], home: [198.51.100.7]}
rules:
  - {name: bad, from: 66.0.0.0/8, then: drop}
services:
  - {name: web, port: [tcp/80, udp/443]}
  - {name: ssh, port: tcp/22, from: $office}
  - {name: ssh-home, port: [tcp/22, 2222], from: [$home, 192.0.2.9]}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80            pass web
tcp 66.8.8.8:5 > 1.1.1.1:80           drop bad
udp 8.8.8.8:5 > 1.1.1.1:80            drop default
udp [2001:db8::1]:5 > [2001:db8::2]:443  pass web
tcp 203.0.113.1:5 > 1.1.1.1:22        pass ssh
tcp [2001:db8:1::1]:5 > [2001:db8::2]:22  pass ssh
tcp 198.51.100.7:5 > 1.1.1.1:22       pass ssh-home
tcp 192.0.2.9:5 > 1.1.1.1:22          pass ssh-home
tcp 8.8.8.8:5 > 1.1.1.1:22            drop ssh:others
udp 192.0.2.9:5 > 1.1.1.1:2222        pass ssh-home
udp 203.0.113.1:5 > 1.1.1.1:2222      drop ssh-home:others
tcp [2001:db8::1]:5 > [2001:db8::2]:22  drop ssh:others
`},
	{"services and default pass", `
default: pass
services:
  - {name: web, port: tcp/80}
  - {name: ssh, port: tcp/22, from: 203.0.113.0/24}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80            pass web
tcp 8.8.8.8:5 > 1.1.1.1:81            pass default
tcp 8.8.8.8:5 > 1.1.1.1:22            drop ssh:others
tcp 203.0.113.7:5 > 1.1.1.1:22        pass ssh
`},
	{"essentials", `
default: drop
rules: [{name: no-errors, icmp: icmp/11, then: drop}]
`, `
icmpv6 fe80::1 > fe80::2 type=135     pass essential:neighbors
icmpv6 fe80::1 > fe80::2 type=136     pass essential:neighbors
icmpv6 fe80::1 > fe80::2 type=135 ttl=64  drop default
icmpv6 2001:db8::1 > fe80::2 type=133  pass essential:neighbors
icmpv6 fe80::1 > ff02::1 type=134     pass essential:routers
icmpv6 fe80::1 > ff02::1 type=137     pass essential:routers
icmpv6 2001:db8::1 > ff02::1 type=134  drop default
icmpv6 fec0::1 > ff02::1 type=137     drop default
icmpv6 fe80::1 > ff02::1 type=137 ttl=254  drop default
icmpv6 fe80::1 > ff02::1 type=130 ttl=1  pass essential:multicast
icmpv6 fe80::1 > ff02::16 type=143 ttl=1  pass essential:multicast
icmpv6 :: > ff02::16 type=143 ttl=1   pass essential:multicast
icmpv6 ::1 > ff02::16 type=143 ttl=1  drop default
icmpv6 febf:ffff::1 > ff02::16 type=131 ttl=1  pass essential:multicast
icmpv6 2001:db8::1 > ff02::16 type=143 ttl=1   drop default
icmpv6 fe80::1 > ff02::16 type=143 ttl=2       drop default
icmpv6 2001:db8::1 > 2001:db8::2 type=2  pass essential:icmpv6-errors
icmpv6 2001:db8::1 > 2001:db8::2 type=4 code=2  pass essential:icmpv6-errors
icmpv6 2001:db8::1 > 2001:db8::2 type=5  drop default
icmpv6 2001:db8::1 > 2001:db8::2      drop default
icmp 8.8.8.8 > 1.1.1.1 type=3 code=4  pass essential:icmp-errors
icmp 8.8.8.8 > 1.1.1.1 type=11        drop no-errors
icmp 8.8.8.8 > 1.1.1.1 type=12        pass essential:icmp-errors
icmp 8.8.8.8 > 1.1.1.1                drop default
udp 192.0.2.1:67 > 192.0.2.7:68       pass essential:dhcp
udp 192.0.2.1:68 > 192.0.2.7:67       drop default
udp [fe80::1]:547 > [fe80::2]:546     pass essential:dhcpv6
udp [2001:db8::1]:547 > [fe80::2]:546  pass essential:dhcpv6-global
udp [2001:db8::1]:547 > [2001:db8::2]:546  pass essential:dhcpv6-global
udp [2001:db8::1]:546 > [2001:db8::2]:547  drop default
udp [fe80::1]:67 > [fe80::2]:68       drop default
udp 192.0.2.1:547 > 192.0.2.7:546     drop default
arp                                   pass not-ip
tcp 8.8.8.8:5 > 1.1.1.1:80            drop default
udp 8.8.8.8 > 1.1.1.1 frag=later      pass essential:fragments
udp 2001:db8::1 > 2001:db8::2 frag=later  pass essential:fragments-ipv6
icmp 8.8.8.8 > 1.1.1.1 frag=later     pass essential:fragments
tcp 8.8.8.8 > 1.1.1.1 frag=later      pass essential:fragments
udp 8.8.8.8:5 > 1.1.1.1:53 frag=first  drop default
`},
	{"fragments that a rule drops", `
default: drop
rules: [{name: no, from: 203.0.113.0/24, fragment: later, then: drop}]
services: [{name: dns, port: udp/53}]
`, `
udp 203.0.113.7 > 1.1.1.1 frag=later  drop no
udp 8.8.8.8 > 1.1.1.1 frag=later      pass essential:fragments
udp 8.8.8.8:5 > 1.1.1.1:53 frag=first  pass dns
udp 8.8.8.8:5 > 1.1.1.1:54 frag=first  drop default
`},
	{"echo", "default: drop\nessential: {echo: on, fragments: off}", `
icmp 8.8.8.8 > 1.1.1.1                pass essential:echo
icmp 8.8.8.8 > 1.1.1.1 echo-reply     pass essential:echo
icmp 8.8.8.8 > 1.1.1.1 type=13        drop default
icmpv6 2001:db8::1 > 2001:db8::2      pass essential:echo-ipv6
icmpv6 2001:db8::1 > 2001:db8::2 type=129  pass essential:echo-ipv6
icmpv6 2001:db8::1 > 2001:db8::2 type=130  drop default
icmp 8.8.8.8 > 1.1.1.1 frag=later     drop essential:fragments:off
`},
	{"no rules", "default: drop\nrules: [{name: never, port: 80, not: {port: 0-65535}, then: pass}]", `
tcp 8.8.8.8:5 > 1.1.1.1:80            drop default
arp                                   pass not-ip
`},
	{"nothing", "default: pass", `
tcp 8.8.8.8:5 > 1.1.1.1:80            pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 cut=14     pass default
tcp 8.8.8.8:5 > 1.1.1.1:80 vlan=1,2,3 pass not-ip
arp                                   pass not-ip
`},
}

func TestKeys(t *testing.T) {
	for _, test := range keyTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := subject.Lower(t, test.policy)
			frames := s.Cases(t, test.packets)
			s.Optimized().Agree(t, frames)
		})
	}
}
