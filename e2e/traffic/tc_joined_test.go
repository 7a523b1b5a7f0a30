// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestJoinedStream sends a TCP stream in joined packets. The counters must be those of its segments, which the sender knows.
func TestJoinedStream(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		s.filter("default: pass\nchecks: strict\nrules:\n" +
			"  - {name: large, proto: tcp, length: 1501-65535, then: drop}\n" +
			"  - {name: stream, port: tcp/9000, then: pass}\n")
		var packets, bytes uint64
		for _, at := range []netip.Addr{plain4, plain6} {
			info, _ := s.stream(netip.AddrPortFrom(at, 9000), 8<<20)
			headers := uint64(14 + 20 + 32)
			if at.Is6() {
				headers += 20
			}
			// The connection is closed in both directions: the client's last segments may still follow.
			packets += uint64(info.Segs_out)
			bytes += uint64(info.Segs_out)*headers + info.Bytes_sent + 8 // the SYN has eight more bytes of options
			got := s.counted("stream", packets)
			t.Logf("%s: %+v, sender %d packets, %d bytes; retrans %d", at, got, packets, bytes, info.Total_retrans)
			if d := int64(got.Packets - packets); d < 0 || d > 4 {
				t.Errorf("%s: %d packets, want %d", at, got.Packets, packets)
			}
			if d := int64(got.Bytes - bytes); d < 0 || d > 4*90 {
				t.Errorf("%s: %d bytes, want %d", at, got.Bytes, bytes)
			}
			packets, bytes = got.Packets, got.Bytes
		}
		for name, r := range s.reasons() {
			if name != "stream" && r.Packets > 0 && r.Verdict == "drop" {
				t.Errorf("%s: %d packets", name, r.Packets)
			}
		}
	})
}

// TestJoinedLimits sends a TCP stream through limits. The burst of some is smaller than a joined packet, so a limit could refuse such packets for ever.
func TestJoinedLimits(t *testing.T) {
	for _, limit := range []string{"rate: 2000/s, per: from, burst: 20", "rate: 2000/s, per: from, burst: 100", "rate: 20mbit/s, per: from", "rate: 2000/s, burst: 30"} {
		t.Run(limit, func(t *testing.T) {
			inPlainScene(t, func(s *plainScene) {
				s.filter(fmt.Sprintf("default: pass\nrules:\n  - {name: over, port: tcp/9000, over: {%s}, then: drop}\n", limit))
				info, took := s.stream(netip.AddrPortFrom(plain4, 9000), 1<<20)
				t.Logf("%v, %d segments, %d sent again, %+v", took, info.Segs_out, info.Total_retrans, s.reasons()["over"])
			})
		})
	}
}

// TestDatagramTrain sends datagrams that the kernel sends as one packet (UDP_SEGMENT).
func TestDatagramTrain(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		const size, count = 1000, 20
		s.filter("default: drop\nchecks: strict\nrules:\n" +
			"  - {name: length, port: udp/9000, length: 1029-65535, then: drop}\n" +
			"  - {name: over, port: udp/9000, over: {rate: 1/min, per: from, burst: 70}, then: drop}\n" +
			"  - {name: exact, port: udp/9000, length: 1028, then: pass}\n")
		r, c := s.receiver(netip.AddrPortFrom(plain4, 9000)), s.sender(netip.AddrPortFrom(plain4, 9000))
		raw, _ := c.SyscallConn()
		var err error
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := c.Write(make([]byte, size*(count-1)+500)); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		for wait := patience; testutil.Arrives(t, r, wait); {
			if got++; got == 3*count { // no more may arrive
				wait = time.Second
			}
		}
		s.counted("over", 2*count)
		reasons := s.reasons()
		t.Logf("received %d, %+v, %+v", got, reasons["exact"], reasons["over"])
		if got != 3*count || reasons["exact"].Packets != 3*count || reasons["exact"].Bytes != 3*(count*42+size*(count-1)+500) {
			t.Errorf("received %d, %+v", got, reasons["exact"])
		}
		if over := reasons["over"]; over.Packets != 2*count || over.Bytes != 2*(count*42+size*(count-1)+500) {
			t.Errorf("%+v", over)
		}
	})
}

// TestQueryTrain sends DNS queries that the kernel sends as one packet. The first decides for all.
func TestQueryTrain(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		s.filter("default: drop\nchecks: strict\nrules:\n  - {name: asks, port: udp/53, dns: {type: [A]}, then: pass}\n")
		query, _ := unhex("123401000001000000000000076578616d706c6503636f6d0000010001")
		r, c := s.receiver(netip.AddrPortFrom(plain4, 53)), s.sender(netip.AddrPortFrom(plain4, 53))
		raw, _ := c.SyscallConn()
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, len(query)) })
		c.Write([]byte(string(query) + string(query) + string(query)))
		r.SetReadDeadline(time.Now().Add(patience))
		for i := range 3 {
			if n, err := r.Read(make([]byte, 200)); n != len(query) {
				t.Errorf("query %d: %d bytes, %v", i, n, err)
			}
		}
		t.Logf("%+v", s.reasons()["asks"])
	})
}
