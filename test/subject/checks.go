// SPDX-License-Identifier: Apache-2.0

package subject

import "github.com/floodwall/floodwall/internal/model/packet"

// CheckTests has two lists of packets for each check: packets that fail the check, and similar packets that pass it. Some of the packets fail other
// checks, so tests turn the other checks off.
var CheckTests = map[packet.Check]struct{ Fail, Pass string }{
	packet.Truncated: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S cut=53
tcp 8.8.8.8:5 > 1.1.1.1:80 S cut=33
tcp 8.8.8.8:5 > 1.1.1.1:80 S vlan=7 cut=17
tcp [2606::1]:5 > [2606::2]:80 S cut=53
tcp [2606::1]:5 > [2606::2]:80 S ext=hbh cut=58
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=29
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=27
icmp 8.8.8.8 > 1.1.1.1 totlen=27
tcp [2606::1]:5 > [2606::2]:80 S totlen=59 doff=5
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=first totlen=39
tcp [2606::1]:5 > [2606::2]:80 S ext=hbh,ah,dst
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=28 len=40
udp 8.8.8.8:5 > 1.1.1.1:80 frag=later totlen=20
proto=17 8.8.8.8 > 1.1.1.1 frag=later
`},
	packet.IPHeader: {`
udp 8.8.8.8:5 > 1.1.1.1:80 ihl=4
udp 8.8.8.8:5 > 1.1.1.1:80 ihl=0
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=19
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=01010101 totlen=23
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=20
udp 8.8.8.8:5 > 1.1.1.1:80 ihl=6
udp 8.8.8.8:5 > 1.1.1.1:80 ihl=15
udp [2606::1]:5 > [2606::2]:80 totlen=40
`},
	packet.VLANDepth: {`
udp 8.8.8.8:5 > 1.1.1.1:80 vlan=1,2,3
arp vlan=1,2,3
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 vlan=1,2
udp [2606::1]:5 > [2606::2]:80 vlan=1,2,3 cut=21
`},
	packet.SourceMAC: {`
udp 8.8.8.8:5 > 1.1.1.1:80 smac=01:00:5e:00:00:01
udp [2606::1]:5 > [2606::2]:80 smac=ff:ff:ff:ff:ff:ff vlan=5
arp smac=03:00:00:00:00:01
udp 8.8.8.8:5 > 1.1.1.1:80 smac=01:00:5e:00:00:01 cut=14
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 smac=fe:01:01:01:01:01
arp
`},
	packet.TTLZero: {`
udp 8.8.8.8:5 > 1.1.1.1:80 ttl=0
udp [2606::1]:5 > [2606::2]:80 ttl=0 frag=later
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 ttl=1
udp [2606::1]:5 > [2606::2]:80 ttl=1
`},
	packet.SourceRoute: {`
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=830704c0000201
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=0101890304
udp 8.8.8.8:5 > 1.1.1.1:80 frag=later ipopts=44040500830304
udp [2606::1]:5 > [2606::2]:80 ext=rh0
udp [2606::1]:5 > [2606::2]:80 ext=hbh,dst,rh0,frag
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=00830304
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=830104
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=94040000
udp [2606::1]:5 > [2606::2]:80 ext=rh2
`},
	packet.IPOptions: {`
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=07070400000000
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=9401
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=94050000
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=01010194
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=9402ff02
`, `
udp 8.8.8.8:5 > 1.1.1.1:80
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=94040000
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=010101
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=00ff0000
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=01010101010101010101010101010101010101010101010101010101010101010101010101010101
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=830304
`},
	packet.TinyFragment: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=first totlen=39
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=first totlen=43
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=8
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=16 mf
tcp [2606::1]:5 > [2606::2]:80 S frag=16
udp 8.8.8.8:5 > 1.1.1.1:80 frag=first totlen=27
icmp 8.8.8.8 > 1.1.1.1 frag=first totlen=27
icmpv6 2606::1 > 2606::2 frag=first totlen=55
tcp [2606::1]:5 > [2606::2]:80 S frag=first totlen=60
udp [2606::1]:5 > [2606::2]:80 frag=first ext=frag,dst totlen=55
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=first
tcp 8.8.8.8:5 > 1.1.1.1:80 S frag=24
udp 8.8.8.8:5 > 1.1.1.1:80 frag=8
udp 8.8.8.8:5 > 1.1.1.1:80 frag=first totlen=28
tcp 8.8.8.8:5 > 1.1.1.1:80 S totlen=39
proto=47 8.8.8.8 > 1.1.1.1 frag=first totlen=20
`},
	packet.FragmentOverflow: {`
udp 8.8.8.8:5 > 1.1.1.1:80 frag=65528
icmp 8.8.8.8 > 1.1.1.1 frag=65504 mf totlen=36
udp [2606::1]:5 > [2606::2]:80 frag=65528
udp [2606::1]:5 > [2606::2]:80 frag=65000 totlen=1000
`, `
icmp 8.8.8.8 > 1.1.1.1 frag=65504 mf totlen=31
udp 8.8.8.8:5 > 1.1.1.1:80 frag=65504
udp [2606::1]:5 > [2606::2]:80 frag=65520
udp 8.8.8.8:5 > 1.1.1.1:80 totlen=65535
`},
	packet.AtomicFragment: {`
udp [2606::1]:5 > [2606::2]:80 ext=frag
udp [2606::1]:5 > [2606::2]:80 ext=hbh,rh2,frag,dst
`, `
udp [2606::1]:5 > [2606::2]:80 frag=first
udp [2606::1]:5 > [2606::2]:80 frag=8
udp [2606::1]:5 > [2606::2]:80 ext=dst
udp 8.8.8.8:5 > 1.1.1.1:80
`},
	packet.ExtHeaders: {`
udp [2606::1]:5 > [2606::2]:80 ext=dst,dst,dst,dst,dst,dst,dst
udp [2606::1]:5 > [2606::2]:80 ext=hbh,dst,rh2,dst,dst,frag,dst
`, `
udp [2606::1]:5 > [2606::2]:80 ext=dst,dst,dst,dst,dst,dst
udp [2606::1]:5 > [2606::2]:80 ext=hbh,dst,rh2,ah,dst,frag,dst
udp [2606::1]:5 > [2606::2]:80 ext=dst,dst,frag,dst,dst,dst,dst frag=8
`},
	packet.ExtOrder: {`
udp [2606::1]:5 > [2606::2]:80 ext=dst,hbh
udp [2606::1]:5 > [2606::2]:80 ext=hbh,hbh
udp [2606::1]:5 > [2606::2]:80 ext=frag,frag
`, `
udp [2606::1]:5 > [2606::2]:80 ext=hbh,dst,rh2,frag,ah,dst
udp [2606::1]:5 > [2606::2]:80 ext=dst,rh2,dst
`},
	packet.Land: {`
udp 8.8.8.8:5 > 8.8.8.8:80
tcp [2606::1]:5 > [2606::1]:80 S
icmp 8.8.8.8 > 8.8.8.8 frag=later
`, `
udp 8.8.8.8:5 > 8.8.8.9:5
tcp [2606::1]:5 > [2606::1:1]:80 S
tcp [2606:1::1]:5 > [2606::1]:80 S
`},
	packet.SourceAddress: {`
udp 224.0.0.1:5 > 1.1.1.1:80
udp 239.255.255.255:5 > 1.1.1.1:80
udp 255.255.255.255:5 > 1.1.1.1:80
udp 127.255.0.1:5 > 1.1.1.1:80
udp [ff02::1]:5 > [2606::2]:80
udp [::1]:5 > [2606::2]:80
`, `
udp 223.255.255.255:5 > 224.0.0.1:80
udp 240.0.0.1:5 > 1.1.1.1:80
udp 126.0.0.1:5 > 127.0.0.1:80
udp 128.0.0.1:5 > 255.255.255.255:80
udp [::]:5 > [ff02::1]:80
udp [::2]:5 > [::1]:80
udp [feff::1]:5 > [2606::2]:80
udp [::ffff:127.0.0.1]:5 > [2606::2]:80
`},
	packet.BogonSource: {`
udp 0.0.0.1:5 > 1.1.1.1:80
tcp 0.0.0.0:5 > 1.1.1.1:80 S
udp 10.255.0.1:5 > 1.1.1.1:80
udp 100.64.0.0:5 > 1.1.1.1:80
udp 100.127.255.255:5 > 1.1.1.1:80
udp 127.0.0.1:5 > 1.1.1.1:80
udp 169.254.0.1:5 > 1.1.1.1:80
udp 172.31.255.255:5 > 1.1.1.1:80
udp 192.0.0.255:5 > 1.1.1.1:80
udp 192.0.2.1:5 > 1.1.1.1:80
udp 192.168.0.1:5 > 1.1.1.1:80
udp 198.19.0.1:5 > 1.1.1.1:80
udp 198.51.100.1:5 > 1.1.1.1:80
udp 203.0.113.1:5 > 1.1.1.1:80
udp 224.0.0.1:5 > 1.1.1.1:80
udp 250.0.0.1:5 > 1.1.1.1:80
tcp [::]:5 > [2606::2]:80 S
udp [::1]:5 > [2606::2]:80
udp [00ff::1]:5 > [2606::2]:80
udp [64:ff9b:1:ffff::1]:5 > [2606::2]:80
udp [100::ffff]:5 > [2606::2]:80
udp [2001:db8:ffff::1]:5 > [2606::2]:80
udp [3fff:fff::1]:5 > [2606::2]:80
udp [fd00::1]:5 > [2606::2]:80
tcp [febf::1]:5 > [2606::2]:80 S
udp [fec0::1]:5 > [2606::2]:80
udp [ff0e::1]:5 > [2606::2]:80
`, `
udp 0.0.0.0:68 > 255.255.255.255:67
udp 9.255.255.255:5 > 1.1.1.1:80
udp 11.0.0.0:5 > 1.1.1.1:80
udp 100.63.255.255:5 > 1.1.1.1:80
udp 100.128.0.0:5 > 1.1.1.1:80
udp 172.15.255.255:5 > 1.1.1.1:80
udp 172.32.0.0:5 > 1.1.1.1:80
udp 192.0.1.0:5 > 1.1.1.1:80
udp 198.17.255.255:5 > 1.1.1.1:80
udp 198.20.0.0:5 > 1.1.1.1:80
udp 223.255.255.255:5 > 10.0.0.1:80
icmpv6 :: > ff02::1 type=135
icmpv6 fe80::1 > ff02::1 type=133
udp [fe80::1]:546 > [ff02::1:2]:547
udp [::]:546 > [ff02::1:2]:547
icmpv6 febf:ffff::1 > ff02::1 type=133
udp [febf::1]:546 > [ff02::1:2]:547
udp [0100:0:0:1::1]:5 > [2606::2]:80
udp [100:0:0:1::]:5 > [2606::2]:80
udp [2001:db9::1]:5 > [2606::2]:80
udp [3ffe::1]:5 > [2606::2]:80
udp [3fff:1000::1]:5 > [2606::2]:80
udp [fbff::1]:5 > [2606::2]:80
`},
	packet.OwnSource: {`
udp 198.51.100.1:5 > 198.51.100.2:80
udp [2606::99]:5 > [2606::2]:80
`, `
udp 198.51.100.2:5 > 198.51.100.1:80
udp [2606::98]:5 > [2606::99]:80
`},
	packet.NDHopLimit: {`
icmpv6 fe80::1 > ff02::1 type=133 ttl=254
icmpv6 fe80::1 > ff02::1 type=137 ttl=1
icmpv6 fe80::1 > ff02::1 type=135 ttl=64 ext=hbh
`, `
icmpv6 fe80::1 > ff02::1 type=133 ttl=255
icmpv6 fe80::1 > ff02::1 type=132 ttl=1
icmpv6 fe80::1 > ff02::1 type=138 ttl=1
icmp 8.8.8.8 > 1.1.1.1 type=135 ttl=64
icmpv6 fe80::1 > ff02::1 type=135 ttl=64 frag=later
`},
	packet.TCPHeader: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=4
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=0
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=7
tcp [2606::1]:5 > [2606::2]:80 . tcpopts=none doff=6
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:80 . tcpopts=none doff=5
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=15 frag=first
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=15 len=80
`},
	packet.TCPFlags: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 none
tcp 8.8.8.8:5 > 1.1.1.1:80 SF
tcp 8.8.8.8:5 > 1.1.1.1:80 SR
tcp 8.8.8.8:5 > 1.1.1.1:80 F
tcp [2606::1]:5 > [2606::2]:80 FPU
tcp 8.8.8.8:5 > 1.1.1.1:80 EW
tcp 8.8.8.8:5 > 1.1.1.1:80 RF.
tcp 8.8.8.8:5 > 1.1.1.1:80 RU.
tcp 8.8.8.8:5 > 1.1.1.1:80 SU.
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:80 SU
tcp 8.8.8.8:5 > 1.1.1.1:80 SEW
tcp 8.8.8.8:5 > 1.1.1.1:80 S.
tcp 8.8.8.8:5 > 1.1.1.1:80 R
tcp 8.8.8.8:5 > 1.1.1.1:80 R.
tcp 8.8.8.8:5 > 1.1.1.1:80 F.
tcp 8.8.8.8:5 > 1.1.1.1:80 FPU.
tcp 8.8.8.8:5 > 1.1.1.1:80 .
tcp [2606::1]:5 > [2606::2]:80 PU.
tcp 8.8.8.8:5 > 1.1.1.1:80 none frag=later
`},
	packet.PortZero: {`
tcp 8.8.8.8:0 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:0 S
udp [2606::1]:5 > [2606::2]:0
`, `
udp 8.8.8.8:0 > 1.1.1.1:80
tcp 8.8.8.8:1 > 1.1.1.1:1 S
udp 8.8.8.8:5 > 1.1.1.1:0 frag=later
icmp 8.8.8.8 > 1.1.1.1
`},
	packet.UDPSourceZero: {`
udp 8.8.8.8:0 > 1.1.1.1:80
udp [2606::1]:0 > [2606::2]:80
`, `
tcp 8.8.8.8:0 > 1.1.1.1:80 S
udp 8.8.8.8:1 > 1.1.1.1:0
`},
	packet.TCPOptions: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=0201
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=02050000
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=010101ff
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=020405b40402080a000000090000000001030207
tcp [2606::1]:5 > [2606::2]:80 S tcpopts=020405b4fe00
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=none
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=00020100
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=020405b40402080a000000090000000001030307
tcp 8.8.8.8:5 > 1.1.1.1:80 . tcpopts=0201
tcp 8.8.8.8:5 > 1.1.1.1:80 S. tcpopts=0201
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=01010101010101010101010101010101010101010101010101010101010101010101010101010101
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=0201 doff=4
`},
	packet.SYNData: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S payload="x"
tcp [2606::1]:5 > [2606::2]:80 S payload="xyz"
tcp 8.8.8.8:5 > 1.1.1.1:80 S doff=5
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S
tcp 8.8.8.8:5 > 1.1.1.1:80 S. payload="x"
tcp 8.8.8.8:5 > 1.1.1.1:80 P. payload="x"
tcp 8.8.8.8:5 > 1.1.1.1:80 S payload="x" totlen=44
`},
	packet.SYNLowPort: {`
tcp 8.8.8.8:1023 > 1.1.1.1:80 S
tcp [2606::1]:0 > [2606::2]:80 S
`, `
tcp 8.8.8.8:1024 > 1.1.1.1:80 S
tcp 8.8.8.8:1023 > 1.1.1.1:80 S.
udp 8.8.8.8:1023 > 1.1.1.1:80
`},
	packet.SYNNoMSS: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=none
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=ws:7,sack,ts
tcp [2606::1]:5 > [2606::2]:80 S tcpopts=eol,mss:1460
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=02050000
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=mss:536
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=nop,nop,ts,mss:1460
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=0202
tcp [2606::1]:5 > [2606::2]:80 S. tcpopts=none
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=none doff=4
tcp 8.8.8.8:5 > 1.1.1.1:80 S tcpopts=none doff=6
`},
	packet.SYNWindowZero: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 S win=0
tcp [2606::1]:5 > [2606::2]:80 SEW win=0
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S win=1
tcp 8.8.8.8:5 > 1.1.1.1:80 S. win=0
`},
	packet.ACKZero: {`
tcp 8.8.8.8:5 > 1.1.1.1:80 . ack=0
tcp [2606::1]:5 > [2606::2]:80 S. ack=0
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 . ack=1
tcp 8.8.8.8:5 > 1.1.1.1:80 . ack=65536
tcp 8.8.8.8:5 > 1.1.1.1:80 S ack=0
`},
	packet.UDPLength: {`
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=7
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=9
udp [2606::1]:5 > [2606::2]:80 udplen=0
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=7 frag=first
udp 8.8.8.8:5 > 1.1.1.1:80 payload="x" totlen=28
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=8
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=8 payload="x"
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=1000 frag=first
udp 8.8.8.8:5 > 1.1.1.1:80 udplen=0 frag=later
`},
	packet.UDP6Checksum: {`
udp [2606::1]:5 > [2606::2]:80 csum=0
udp [2606::1]:5 > [2606::2]:80 csum=0 frag=first
`, `
udp 8.8.8.8:5 > 1.1.1.1:80 csum=0
udp [2606::1]:5 > [2606::2]:80 csum=bad
udp [2606::1]:5 > [2606::2]:80 csum=0 frag=later
`},
	packet.ReflectorSource: {`
udp 8.8.8.8:17 > 1.1.1.1:80
udp 8.8.8.8:19 > 1.1.1.1:80
udp 8.8.8.8:69 > 1.1.1.1:80
udp 8.8.8.8:111 > 1.1.1.1:80
udp 8.8.8.8:137 > 1.1.1.1:80
udp 8.8.8.8:161 > 1.1.1.1:80
udp 8.8.8.8:389 > 1.1.1.1:80
udp 8.8.8.8:427 > 1.1.1.1:80
udp 8.8.8.8:520 > 1.1.1.1:80
udp 8.8.8.8:623 > 1.1.1.1:80
udp 8.8.8.8:1434 > 1.1.1.1:80
udp 8.8.8.8:1900 > 1.1.1.1:80
udp 8.8.8.8:3283 > 1.1.1.1:80
udp 8.8.8.8:3702 > 1.1.1.1:80
udp 8.8.8.8:5093 > 1.1.1.1:80
udp 8.8.8.8:5353 > 1.1.1.1:80
udp 8.8.8.8:5683 > 1.1.1.1:80
udp 8.8.8.8:10001 > 1.1.1.1:80
udp [2606::1]:11211 > [2606::2]:80
udp 8.8.8.8:37810 > 1.1.1.1:80
`, `
udp 8.8.8.8:53 > 1.1.1.1:1900
udp 8.8.8.8:123 > 1.1.1.1:19
tcp 8.8.8.8:11211 > 1.1.1.1:80 .
udp [2606::1]:11211 > [2606::2]:80 frag=later
`},
	packet.ICMPType: {`
icmp 8.8.8.8 > 1.1.1.1 type=4
icmp 8.8.8.8 > 1.1.1.1 type=5 code=1
icmp 8.8.8.8 > 1.1.1.1 type=13
icmp 8.8.8.8 > 1.1.1.1 type=14
icmp 8.8.8.8 > 1.1.1.1 type=15
icmp 8.8.8.8 > 1.1.1.1 type=16
icmp 8.8.8.8 > 1.1.1.1 type=17
icmp 8.8.8.8 > 1.1.1.1 type=18
`, `
icmp 8.8.8.8 > 1.1.1.1 type=3
icmp 8.8.8.8 > 1.1.1.1 type=12
icmp 8.8.8.8 > 1.1.1.1 type=19
icmpv6 2606::1 > 2606::2 type=5
icmp 8.8.8.8 > 1.1.1.1 type=5 frag=later
`},
	packet.ICMPLarge: {`
icmp 8.8.8.8 > 1.1.1.1 len=1025
icmpv6 2606::1 > 2606::2 len=1025
icmp 8.8.8.8 > 1.1.1.1 len=1500
`, `
icmp 8.8.8.8 > 1.1.1.1 len=1024
icmp 8.8.8.8 > 1.1.1.1 echo-reply len=1025
icmpv6 2606::1 > 2606::2 type=8 len=1025
icmp 8.8.8.8 > 1.1.1.1 len=1025 frag=later
`},
	packet.IPProtocol: {`
proto=148 8.8.8.8 > 1.1.1.1
proto=252 2606::1 > 2606::2
proto=255 8.8.8.8 > 1.1.1.1
proto=200 2606::1 > 2606::2 ext=hbh,frag
`, `
proto=147 8.8.8.8 > 1.1.1.1
proto=253 8.8.8.8 > 1.1.1.1
proto=254 2606::1 > 2606::2
proto=0 8.8.8.8 > 1.1.1.1
`},
	packet.IPChecksum: {`
udp 8.8.8.8:5 > 1.1.1.1:80 csum=bad
udp 8.8.8.8:5 > 1.1.1.1:80 csum=bad ipopts=94040000 frag=later
tcp 8.8.8.8:5 > 1.1.1.1:80 S csum=bad vlan=1,2
`, `
udp 8.8.8.8:5 > 1.1.1.1:80
udp 8.8.8.8:5 > 1.1.1.1:80 csum=0
udp 8.8.8.8:5 > 1.1.1.1:80 ipopts=01010101010101010101010101010101010101010101010101010101010101010101010101010101
udp [2606::1]:5 > [2606::2]:80 csum=bad
`},
}
