// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

const (
	rakNetMagic  = "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78"
	rakNetServer = "\x01\x02\x03\x04\x05\x06\x07\x08" // the server's GUID
)

// request1 returns the first request of a RakNet client, with the given length.
func request1(version byte, length int) []byte {
	b := make([]byte, length)
	copy(b, "\x05"+rakNetMagic)
	b[17] = version
	return b
}

// request2 returns the second request of a RakNet client. cookie may be "".
func request2(cookie string, six bool, mtu uint16) []byte {
	address := "\x04\xf5\xff\xff\xfd\x4a\xbc"
	if six {
		address = "\x06\x17\x00\x4a\xbd" + strings.Repeat("\x00", 4) + "\xfd" + strings.Repeat("\x00", 14) + "\x02" + strings.Repeat("\x00", 4)
	}
	if cookie != "" {
		cookie += "\x00"
	}
	b := binary.BigEndian.AppendUint16([]byte("\x07"+rakNetMagic+cookie+address), mtu)
	return append(b, "a client"...)
}

// reply1 returns a server's answer to the first request.
func reply1(cookie string, mtu uint16) []byte {
	security := "\x00"
	if cookie != "" {
		security = "\x01" + cookie
	}
	return binary.BigEndian.AppendUint16([]byte("\x06"+rakNetMagic+rakNetServer+security), mtu)
}

// sum returns the Internet sum of 16-bit words (RFC 1071).
func sum(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i%2))
	}
	s = s&0xffff + s>>16
	return uint16(s + s>>16)
}

// passed sends a frame through the entry, which must pass the frame. It returns the payload that the service gets.
func (f flooded) passed(t *testing.T, frame []byte) []byte {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+100), Repeat: 1}
	if action, err := f.Native().Run(&o); err != nil || action != 2 {
		t.Fatalf("a frame gets %d, %v, want it to pass", action, err)
	}
	was, is := packet.Decode(frame), wellFormed(t, o.DataOut)
	if is.Src != was.Src || is.Dst != was.Dst || is.Value != was.Value {
		t.Fatalf("a packet %v passes as %v", was, is)
	}
	return is.Payload
}

// isFirstOf checks that a payload is a first request of a version that was made from a second request, with the same checksum.
func isFirstOf(t *testing.T, got, second []byte, version byte) {
	t.Helper()
	want := request1(version, len(second))
	at := len(second) - 3 // offset of the word that makes the checksum equal
	if !bytes.Equal(got[:at], want[:at]) || got[len(got)-1] != 0 || sum(got) != sum(second) {
		t.Fatalf("of a second request % x becomes % x", second, got)
	}
}

// TestRakNetRequests plays a client that opens a connection to a RakNet server during a flood and follows the protocol.
func TestRakNetRequests(t *testing.T) {
	for name, client := range gameClients {
		for _, six := range []bool{false, true} { // the family of the address in the message, which may differ from the family of the packet
			for _, cookies := range []string{"", "\x05\x06\x07\x08"} { // of the server
				t.Run(fmt.Sprintf("%s, six=%t, cookies=%t", name, six, cookies != ""), func(t *testing.T) {
					f := loadFlooded(t, "{protect: raknet, total: off}")
					f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
					toClient := strings.Split(client, " vlan")[0]
					f.leave(t, left(t, toClient, reply1(cookies, 1464)))
					reply, passes := f.answered(t, arrived(t, client, request1(11, 1172)))
					if len(reply) != 32 || passes || !bytes.Equal(reply, reply1(string(reply[26:30]), 1200)) {
						t.Fatalf("a first request is answered with % x", reply)
					}
					cookie := string(reply[26:30])
					second := request2(cookie, six, 1200)
					if at := f.reason(t, arrived(t, client, second)); at != "game:proved" {
						t.Fatalf("a second request is counted at %s", at)
					}
					isFirstOf(t, f.passed(t, arrived(t, client, second)), second, 11)
					if at := f.reason(t, arrived(t, client, []byte("\x84connected"))); at != "game" {
						t.Errorf("what comes before the server's reply is counted at %s", at)
					}
					f.turned(t, left(t, toClient, reply1(cookies, 67)), request2(cookies, six, 1200))
					f.leave(t, left(t, toClient, reply1(cookies, 67))) // another reply passes to the client
					for range 3 {
						if at := f.reason(t, arrived(t, client, []byte("\x84connected"))); at != "game:known" {
							t.Errorf("after that, what the client sends is counted at %s", at)
						}
					}
					// The second request may be lost, or the flood may have ended. In both cases, the server must never get a cookie of the program.
					again := arrived(t, client, second)
					if at := f.reason(t, again); at != "game:known" {
						t.Errorf("another second request is counted at %s", at)
					}
					isFirstOf(t, f.passed(t, again), second, 11)
					f.state(t, 0, 0)
					elsewhere := strings.NewReplacer("198.51.100.7", "198.51.100.8", "db8::7", "db8::8", ":4000", ":4001").Replace(client)
					isFirstOf(t, f.passed(t, again), second, 11)
					if got := f.passed(t, arrived(t, elsewhere, second)); !bytes.Equal(got, second) {
						t.Errorf("the cookie of another is changed: % x", got)
					}
					for _, own := range [][]byte{request2("", six, 1200), request2("\x05\x06\x07\x08", six, 1200), request1(11, 600), []byte("\x84data")} {
						if got := f.passed(t, arrived(t, client, own)); !bytes.Equal(got, own) {
							t.Errorf("% x becomes % x", own, got)
						}
					}
				})
			}
		}
	}
}

// TestRakNetRefused sends a flood of datagrams that prove no address.
func TestRakNetRefused(t *testing.T) {
	f := loadFlooded(t, "{protect: raknet, total: off}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f.leave(t, left(t, client, reply1("1234", 1464)))
	reply, _ := f.answered(t, arrived(t, client, request1(11, 1172)))
	cookie := string(reply[26:30])
	wrong := []byte(cookie)
	wrong[0] ^= 2 // of another version
	for what, c := range map[string]struct {
		from    string
		payload []byte
		want    string
	}{
		"the cookie of another address":  {"udp 198.51.100.8:4000 > 192.0.2.1:7000", request2(cookie, false, 1200), "game"},
		"of another port":                {"udp 198.51.100.7:4001 > 192.0.2.1:7000", request2(cookie, false, 1200), "game"},
		"for another server":             {"udp 198.51.100.7:4000 > 192.0.2.2:7000", request2(cookie, false, 1200), "game"},
		"of another version":             {client, request2(string(wrong), false, 1200), "game"},
		"the server's own":               {client, request2("1234", false, 1200), "game"},
		"none":                           {client, request2("", false, 1200), "game"},
		"another address type":           {client, append(append(request2(cookie, false, 1200)[:22:22], 5), request2(cookie, false, 1200)[23:]...), "game"},
		"a byte more":                    {client, append(request2(cookie, false, 1200), 0), "game"},
		"a first request that is short":  {client, request1(11, 31), "game"},
		"the shortest":                   {client, request1(11, 32), "challenge"},
		"of version 15":                  {client, request1(15, 1464), "challenge"},
		"of version 16":                  {client, request1(16, 1464), "game"},
		"of another magic":               {client, bytes.Replace(request1(11, 1464), []byte("\x12\x34"), []byte("\x12\x35"), 1), "game"},
		"of another magic, at its start": {client, bytes.Replace(request1(11, 1464), []byte("\xff\xff"), []byte("\xff\xfe"), 1), "game"},
		"a ping":                         {client, []byte("\x01" + strings.Repeat("\x00", 8) + rakNetMagic + "a client"), "game"},
		"data":                           {client, []byte("\x84\x00\x00\x00data"), "game"},
		"an ACK":                         {client, []byte("\xc0\x00\x01\x01\x00\x00\x00"), "game"},
		"a byte":                         {client, []byte{7}, "game"},
	} {
		if _, _, at := f.asked(t, arrived(t, c.from, c.payload)); at != c.want {
			t.Errorf("%s: it is counted at %s, want %s", what, at, c.want)
		}
	}
}

// TestRakNetServers checks replies that the program sends in place of a server. They must have the properties that the server has sent. The test also
// sends requests to a server that has sent nothing yet.
func TestRakNetServers(t *testing.T) {
	f := loadFlooded(t, "{protect: raknet, limit: off, total: {rate: 1/h, burst: 1}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	const client, other = "udp 198.51.100.7:4000 > 192.0.2.1:7000", "udp 198.51.100.7:4000 > 192.0.2.2:7000"
	passes := 0
	for range 3000 {
		if _, pass := f.answered(t, arrived(t, client, request1(11, 1464))); pass {
			passes++
		}
	}
	if passes < 100 || passes > 1500 { // 100 at once, and then one per millisecond
		t.Errorf("of 3000 requests at a server of which nothing is known %d reach it", passes)
	}
	for _, c := range []struct {
		leaves []byte
		length int
		mtu    uint16
	}{
		{reply1("", 576), 1464, 1492}, // the client did not ask for more
		{reply1("", 67), 1464, 1492},
		{reply1("", 1400), 1464, 1400},
		{reply1("1234", 800), 1464, 1400},
		{reply1("1234", 1492), 1472, 1492},
		{reply1("1234", 1492), 548, 576},
		{bytes.Replace(reply1("", 1492), []byte(rakNetServer), []byte("newstart"), 1), 1172, 1200},
		{bytes.Replace(reply1("", 1300), []byte(rakNetServer), []byte("restarts"), 1), 1464, 1300},
	} {
		f.leave(t, left(t, client, c.leaves))
		reply, _ := f.answered(t, arrived(t, client, request1(11, c.length)))
		want := reply1("0000", c.mtu)
		copy(want[17:25], c.leaves[17:25])
		if len(reply) == 32 {
			copy(want[26:30], reply[26:30])
		}
		if !bytes.Equal(reply, want) {
			t.Errorf("a request of %d bytes is answered with % x, want % x", c.length, reply, want)
		}
	}
	if reply, _ := f.answered(t, arrived(t, other, request1(11, 1464))); reply != nil {
		t.Error("what one server says is taken for another's")
	}
	for i := range 3000 { // more servers than the map can store
		server := fmt.Sprintf("udp 198.51.100.7:4000 > 192.1.%d.%d:7000", i>>8, i&255)
		f.leave(t, left(t, server, reply1("", 1492)))
		if reply, _ := f.answered(t, arrived(t, server, request1(11, 1464))); len(reply) != 32 {
			t.Fatalf("server %d is not answered for", i)
		}
	}
	f.leave(t, left(t, client, reply1("", 1492)))
	if reply, _ := f.answered(t, arrived(t, client, request1(11, 1464))); len(reply) != 32 {
		t.Error("behind many others a server is not answered for")
	}
	// A packet that leaves through the device by which it arrived. Another host may have sent it in place of this server.
	var skb [192]byte // struct __sk_buff of linux/bpf.h
	binary.NativeEndian.PutUint32(skb[36:], 1)
	f.forgetAll(t, image.RakNetServers)
	o := ebpf.RunOptions{Data: left(t, client, reply1("", 1492)), DataOut: make([]byte, 200), Context: skb}
	if _, err := f.Egress().Run(&o); err != nil {
		t.Fatal(err)
	}
	if reply, _ := f.answered(t, arrived(t, client, request1(11, 1464))); reply != nil {
		t.Error("what comes in and leaves at one device is taken for a server's reply")
	}
}

// TestRakNetStays checks how long a client with a proved address stays known. If it continues to send, it must stay known as long as any other
// client. Otherwise it must stay known for 30 s.
func TestRakNetStays(t *testing.T) {
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	data := []byte("\x84connected")
	for _, c := range []struct {
		answered bool
		units    uint64
		want     string
	}{{false, 6, "game:known"}, {false, 9, "game"}, {true, 30, "game:known"}, {true, 45, "game"}} {
		for {
			began := image.Monotonic() / replyUnit
			f := loadFlooded(t, "{protect: raknet, total: off}")
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			f.leave(t, left(t, client, reply1("1234", 1464)))
			f.forget(t)
			reply, _ := f.answered(t, arrived(t, client, request1(11, 1172)))
			second := request2(string(reply[26:30]), false, 1200)
			f.passed(t, arrived(t, client, second))
			f.turned(t, left(t, client, reply1("1234", 67)), request2("1234", false, 1200))
			if c.answered {
				f.arrive(t, arrived(t, client, data))
				f.leave(t, left(t, client, data))
			}
			f.age(t, c.units)
			at := f.reason(t, arrived(t, client, data))
			if image.Monotonic()/replyUnit != began {
				continue
			}
			if at != c.want {
				t.Errorf("%+v: it is counted at %s", c, at)
			}
			break
		}
	}
}

// TestRakNetObserved sends requests and data during a flood, with rules that only count.
func TestRakNetObserved(t *testing.T) {
	f := loadFlooded(t, "{protect: raknet, observe: true, total: {rate: 1/h, burst: 1}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f.leave(t, left(t, client, reply1("1234", 1464)))
	for range 200 {
		for _, b := range [][]byte{request1(11, 1172), request2("1234", false, 1200), []byte("\x84data")} {
			if got := f.passed(t, arrived(t, client, b)); !bytes.Equal(got, b) {
				t.Fatalf("% x becomes % x", b, got)
			}
		}
	}
	f.leave(t, left(t, client, reply1("1234", 1464)))
}

// TestRakNetNeighbours sends forged second requests from all addresses of a client's prefix. They prove no address, so they must not be charged to
// the limit of the prefix. The client's own second request must pass.
func TestRakNetNeighbours(t *testing.T) {
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f := loadFlooded(t, "{protect: raknet, total: {rate: 1/h, burst: 1}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	f.leave(t, left(t, "udp 198.51.100.99:1 > 192.0.2.1:7000", reply1("", 1492)))
	f.answered(t, arrived(t, "udp 203.0.113.1:1 > 192.0.2.1:7000", []byte("what total lets pass")))
	reply, _ := f.answered(t, arrived(t, client, request1(11, 1172)))
	for i := range 2000 {
		forged := fmt.Sprintf("udp 198.51.100.%d:%d > 192.0.2.1:7000", 1+i%200, 1000+i)
		if _, passes := f.answered(t, arrived(t, forged, request2("1234", false, 1200))); passes {
			t.Fatalf("%s passes with a forged cookie", forged)
		}
	}
	if _, passes := f.answered(t, arrived(t, client, request2(string(reply[26:30]), false, 1200))); !passes {
		t.Error("the request of the client does not pass")
	}
}
