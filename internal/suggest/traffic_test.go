package suggest_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/suggest"
)

// legitimate are packets of a server's usual traffic to 10.10.10.10.
func legitimate(r *rand.Rand, n int) []suggest.Sample {
	return packets(n, func() string {
		client := fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(220), r.IntN(256), r.IntN(256), 1+r.IntN(254))
		ttl := []int{46, 50, 52, 55, 57, 58, 113, 116, 118, 120, 122, 240, 242, 244}[r.IntN(14)]
		port := 32768 + r.IntN(28000)
		tcp := fmt.Sprintf("tcp %s:%d > 10.10.10.10:%d", client, port, []int{443, 443, 443, 80, 25565, 22}[r.IntN(6)])
		udp := func(sport, dport int) string { return fmt.Sprintf("udp %s:%d > 10.10.10.10:%d", client, sport, dport) }
		switch r.IntN(20) {
		case 0, 1:
			return fmt.Sprintf("%s S ttl=%d seq=%d tcpopts=mss:1460,sack,ts,nop,ws:7", tcp, ttl, r.Uint32())
		case 2:
			return fmt.Sprintf("%s F. ttl=%d seq=%d ack=%d", tcp, ttl, r.Uint32(), r.Uint32())
		case 3:
			return fmt.Sprintf("tcp %s:443 > 10.10.10.10:%d S. ttl=%d seq=%d tcpopts=mss:1460,sack,ts,nop,ws:9", client, port, ttl, r.Uint32())
		case 4, 5:
			return fmt.Sprintf("%s ttl=%d dns=%s,%s.example,id:%d", udp(port, 53), ttl, []string{"A", "AAAA", "TXT", "MX"}[r.IntN(4)],
				[]string{"www", "mail", "a.b", "evil"}[r.IntN(4)], r.IntN(65536))
		case 6:
			return fmt.Sprintf("%s ttl=%d dns=A,www.example,id:%d,response", udp(53, port), ttl, r.IntN(65536))
		case 7, 8:
			return fmt.Sprintf("%s ttl=%d len=%d payload=0x%08x", udp(port, 443), ttl, 60+r.IntN(1190), r.Uint32())
		case 9:
			return fmt.Sprintf("%s ttl=%d len=76 payload=0x24010000", udp(123, 123), ttl)
		case 10, 11, 12:
			return fmt.Sprintf("%s . ttl=%d seq=%d ack=%d len=%d", tcp, ttl, r.Uint32(), r.Uint32(), []int{40, 52}[r.IntN(2)])
		case 13:
			return fmt.Sprintf("icmp %s > 10.10.10.10 ttl=%d echo-request len=84", client, ttl)
		}
		return fmt.Sprintf("%s %s ttl=%d seq=%d ack=%d len=%d", tcp, []string{"P.", "."}[r.IntN(2)], ttl, r.Uint32(), r.Uint32(), 40+r.IntN(1460))
	})
}

// packets are n packets that line describes, in the notation of explain.
func packets(n int, line func() string) []suggest.Sample {
	list := make([]suggest.Sample, n)
	for i := range list {
		list[i] = sampleOf(line())
	}
	return list
}

func sampleOf(line string) suggest.Sample {
	spec, err := packet.Parse(line)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", line, err))
	}
	frame := spec.Frame()
	return suggest.NewSample(frame, len(frame))
}
