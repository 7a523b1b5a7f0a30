package compile_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

func cost(t *testing.T, name string, p *ir.Program, frame []byte) {
	s := programmed(p)
	start := time.Now()
	x, err := compile.ToXDP(p, compile.XDPOptions{Form: compile.Straight})
	if err != nil {
		t.Fatal(err)
	}
	made := time.Since(start)
	n := processed(t, x)
	start = time.Now()
	prog := s.load(t, x)
	loaded := time.Since(start)
	best := time.Hour
	for range 15 {
		_, took, err := prog.Native().Benchmark(frame, 300000, nil)
		if err != nil {
			t.Fatal(err)
		}
		best = min(best, took)
	}
	fmt.Printf("%-40s %4d ns  %7d processed, made in %v, loaded in %v\n", name, best.Nanoseconds(), n, made, loaded)
}

func TestCost(t *testing.T) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(1)
	unix.SchedSetaffinity(0, &set)
	w := func(n int) *ir.Program {
		var m ir.PayloadMatch
		for i := range n {
			m.Any = append(m.Any, text(fmt.Sprintf("evil%d.example", i*7), 256))
		}
		return &ir.Program{Rules: []ir.Rule{asks("r", m)}}
	}
	f := carrying(t, carriers[0], bytes.Repeat([]byte("abcdefghijklmnop"), 8), nil).frame
	random := carrying(t, carriers[0], []byte("GET /index.html HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nX-Some-Thing: 0123456789abcdef0123456789\r\n\r\nxx")[:128], nil).frame
	cost(t, "nothing", &ir.Program{}, f)
	cost(t, "one place", &ir.Program{Rules: []ir.Rule{asks("r", ir.PayloadMatch{At: []ir.At{{Offset: 3, Value: []byte("abcd"), Mask: []byte{255, 255, 255, 255}}}})}}, f)
	for _, n := range []int{1, 64} {
		cost(t, fmt.Sprint(n, " patterns, 128 octets"), w(n), f)
		cost(t, fmt.Sprint(n, " patterns, 128 octets of HTTP"), w(n), random)
	}
	short := w(3)
	short.Rules[0].Payload[0].Any = append(short.Rules[0].Payload[0].Any, text("zq", 256))
	cost(t, "4 patterns, one short", short, f)
	q := carrying(t, dnsCarriers[0], dnsQuery("\x03www\x07example\x03com\x00"), nil).frame
	cost(t, "DNS, nothing asked", &ir.Program{}, q)
	cost(t, "DNS type", &ir.Program{Rules: []ir.Rule{{Name: "a", Verdict: ir.Drop, Match: []ir.Match{dnsPort(53), values(packet.DNS, 255, 255)}}}}, q)
	for _, n := range []int{1_000_000} {
		set := ir.NameSet{Name: "x"}
		for i := range n {
			set.Names = append(set.Names, fmt.Sprintf("host-%d.evil%d.example", i*7919, i))
		}
		p := &ir.Program{Names: []ir.NameSet{set}, Rules: []ir.Rule{{Name: "a", Verdict: ir.Drop, Match: []ir.Match{dnsPort(53)}, Names: []ir.NameMatch{{Sets: []int{0}}}}}}
		cost(t, fmt.Sprint(n, " names, miss"), p, q)
		last := set.Names[n-1]
		_ = last
	}
}
