package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// An audit follows one limit: what the exact model lets pass, and whether what the program lets pass ever conforms to no
// more than a little above the limit.
type audit struct {
	*limited
	limit  int
	model  *ir.Limiter // of the limit
	ceil   *ir.Limiter // of the limit with one packet more at once
	frames [][]byte
	counts map[string]*counts // by what they are charged to
}

type counts struct{ model, got int }

// audit follows a limit for packets from some sources.
func (l *limited) audit(t *testing.T, limit int, frames ...[]byte) *audit {
	t.Helper()
	above := *l.program
	above.Limits = append([]ir.Limit(nil), l.program.Limits...)
	more := uint64(1)
	if above.Limits[limit].Bits {
		more = 8 * 1500
	}
	above.Limits[limit].Burst += more
	return &audit{l, limit, ir.NewLimiter(l.program), ir.NewLimiter(&above), frames, map[string]*counts{}}
}

// send sends a packet, and fails when more have passed than may in any span of time.
func (a *audit) send(t *testing.T, frame []byte, now time.Duration) (passed bool) {
	t.Helper()
	pkt := packet.Decode(frame)
	who := a.charged(&pkt)
	c := a.counts[who]
	if c == nil {
		c = &counts{}
		a.counts[who] = c
	}
	if !a.model.Over(a.limit, &pkt, now) {
		c.model++
	}
	if a.over(t, frame, now) {
		return false
	}
	c.got++
	if a.ceil.Over(a.limit, &pkt, now) {
		t.Fatalf("limit %+v: at %v packet %d passes from %v, which is more than may", a.program.Limits[a.limit], now, c.got, pkt.Src)
	}
	return true
}

// charged names what a packet is charged to: whoever shares it may get more or less of it, as it happens.
func (a *audit) charged(pkt *packet.Packet) (who string) {
	l := &a.program.Limits[a.limit]
	if l.Src != nil {
		who = "from " + l.Src.Of(pkt.Src).String()
	}
	if l.Dst != nil {
		who += " to " + l.Dst.Of(pkt.Dst).String()
	}
	return who
}

// check fails when a prefix got less than a share of what the model lets it have, one packet aside.
func (a *audit) check(t *testing.T, share float64) {
	t.Helper()
	for who, c := range a.counts {
		if float64(c.got) < share*float64(c.model)-1 {
			t.Errorf("limit %+v: %d packets passed of %s, the model passes %d", a.program.Limits[a.limit], c.got, who, c.model)
		}
	}
}

// logUniform draws a number between two, all magnitudes alike.
func logUniform(r *rand.Rand, least, most float64) float64 {
	return math.Exp(math.Log(least) + r.Float64()*math.Log(most/least))
}

// randomLimit draws a limit of 1 packet a day to 10M a second, or of up to 100 Gbit/s.
func randomLimit(r *rand.Rand) ir.Limit {
	l := ir.Limit{Per: []time.Duration{time.Second, time.Minute, time.Hour, day}[r.IntN(4)], Max: 100}
	perSecond := logUniform(r, 1/day.Seconds(), 1e7)
	if l.Bits = r.IntN(2) == 0; l.Bits {
		perSecond = logUniform(r, 1, 1e11)
	}
	l.Rate = uint64(max(1, perSecond*l.Per.Seconds()))
	l.Burst = 1 + uint64(logUniform(r, 1, 10+3*perSecond))
	if l.Bits {
		l.Burst += 12_000
	}
	if r.IntN(4) > 0 {
		l.Src = &ir.Prefixes{V4: r.IntN(33), V6: r.IntN(129)}
	}
	if r.IntN(4) == 0 {
		l.Dst = &ir.Prefixes{V4: r.IntN(33), V6: r.IntN(129)}
	}
	return l
}

// interval is the time of one packet of so many bytes at the rate of a limit.
func interval(l *ir.Limit, bytes int) time.Duration {
	amount := 1.0
	if l.Bits {
		amount = 8 * float64(bytes)
	}
	return time.Duration(max(1, amount*float64(l.Per)/float64(l.Rate)))
}

// TestLimitModel sends packets at random times through random limits, and compares with the exact model.
func TestLimitModel(t *testing.T) {
	r, _ := subject.Seeded(t)
	var limits []ir.Limit
	for range testutil.Scaled(60, 120) {
		limits = append(limits, randomLimit(r))
	}
	l := loadLimits(t, limits...)
	for i := range limits {
		bytes := 60 + r.IntN(1200)
		a := l.audit(t, i)
		for range 4 {
			src := fmt.Sprintf("10.%d.%d.%d", r.IntN(3), r.IntN(3), r.IntN(3))
			a.frames = append(a.frames, limitFrame(t, i, src, "192.0.2.1", bytes))
			src = fmt.Sprintf("2001:db8:%d:%d::%d", r.IntN(3), r.IntN(3), r.IntN(3))
			a.frames = append(a.frames, limitFrame(t, i, src, "2001:db8::1", bytes))
		}
		a.random(t, r, interval(&limits[i], bytes))
		a.check(t, 0.98)
	}
}

// random sends bursts, steady traffic of up to four times the rate, and pauses of up to some days.
func (a *audit) random(t *testing.T, r *rand.Rand, interval time.Duration) {
	t.Helper()
	now := time.Duration(1 + r.Int64N(int64(1000*day)))
	for range 20 {
		switch r.IntN(6) {
		case 0:
			now += time.Duration(logUniform(r, 1e3, 5*float64(day)))
		case 1:
			now += time.Duration(logUniform(r, 1, 1e4) * float64(interval))
		}
		load := []float64{0, 0.3, 1, 4}[r.IntN(4)]
		for range 100 {
			if load > 0 {
				now += time.Duration(r.Float64() * 2 * float64(interval) / load / float64(len(a.frames)))
			}
			a.send(t, a.frames[r.IntN(len(a.frames))], now)
		}
	}
}

// TestLimitPrecision sends three times the rate, for long enough that the burst hardly counts, through the limits whose
// numbers are the largest and the smallest.
func TestLimitPrecision(t *testing.T) {
	limits := []ir.Limit{
		{Rate: 1, Per: day, Burst: 5},
		{Rate: 7, Per: day, Burst: 2},
		{Rate: 1000, Per: time.Second, Burst: 2000},
		{Rate: 999_983, Per: time.Second, Burst: 5},
		{Rate: 9_999_991, Per: time.Second, Burst: uint64(testutil.Scaled(100_000, 10_000_000))}, // one in bits, below, has the largest burst
		{Rate: 10_000_000, Per: time.Second, Burst: 5},
		{Rate: 1, Per: time.Minute, Bits: true, Burst: 12_000},
		{Rate: 1_000_000, Per: time.Second, Bits: true, Burst: 120_000},
		{Rate: 100_000_000_000, Per: time.Second, Bits: true, Burst: 100_000_000_000},
		{Rate: 99_999_999_977, Per: time.Second, Bits: true, Burst: 12_000},
	}
	l := loadLimits(t, limits...)
	for i := range limits {
		precise(t, l, i)
	}
}

// precise uses up the burst of a limit at once, and measures the rate behind it.
func precise(t *testing.T, l *limited, i int) {
	t.Helper()
	const bytes = 64
	limit := &l.program.Limits[i]
	now := 10 * day
	l.drain(t, i, now)
	frame := limitFrame(t, i, "10.1.2.3", "192.0.2.1", bytes)
	start, passed := now, 0
	for range testutil.Scaled(3000, 6000) {
		now += max(interval(limit, bytes)/3, 1)
		if !l.over(t, frame, now) {
			passed++
		}
	}
	want := float64(now-start) / float64(limit.Per) * float64(limit.Rate)
	if limit.Bits {
		want /= 8 * bytes
	}
	if got := float64(passed); got > want+1 || got < 0.995*want-1 {
		t.Errorf("limit %+v: %d packets passed in %v, want %.1f", *limit, passed, now-start, want)
	}
}

// drain sends as many large packets, and then small ones, as the burst of a limit has space for.
func (l *limited) drain(t *testing.T, i int, now time.Duration) {
	t.Helper()
	limit := &l.program.Limits[i]
	n := limit.Burst
	if limit.Bits {
		n /= 8 * 1500
	}
	l.repeat(t, limitFrame(t, i, "10.1.2.3", "192.0.2.1", 1500), now, int(n))
	small := limitFrame(t, i, "10.1.2.3", "192.0.2.1", 28)
	for n := 0; !l.over(t, small, now); n++ {
		if n > 100 {
			t.Fatalf("limit %+v: the burst does not end", *limit)
		}
	}
}

// repeat charges a limit with many equal packets that come at once.
func (l *limited) repeat(t *testing.T, frame []byte, now time.Duration, times int) {
	t.Helper()
	if _, err := l.Native().Run(question(frame, now, times)); err != nil {
		t.Fatal(err)
	}
}

// question is what charges the limits of a loaded program with a packet: struct question of bpf/explain.h.
func question(frame []byte, now time.Duration, repeat int) *ebpf.RunOptions {
	const size, charge = 24, 2
	in := binary.NativeEndian.AppendUint64(nil, subject.QuestionKey)
	in = binary.NativeEndian.AppendUint64(in, uint64(now))
	in = binary.NativeEndian.AppendUint32(in, 0)
	in = binary.NativeEndian.AppendUint32(in, charge)
	in = append(in, frame...)
	context := struct{ Data, DataEnd, Meta, Device, Queue, Egress uint32 }{Data: size, DataEnd: uint32(len(in))}
	return &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)), Repeat: uint32(repeat), Context: context}
}

// TestLimitWrap brings a prefix back after pauses about as long as the time in which the words of its table wrap around,
// and multiples and fractions of it.
func TestLimitWrap(t *testing.T) {
	r, _ := subject.Seeded(t)
	limits := []ir.Limit{
		{Rate: 10_000_000, Per: time.Second, Burst: 10},           // a unit of 2^-8 ns: 4.3 s
		{Rate: 1000, Per: time.Second, Burst: 1000},               // 2^-7 ns
		{Rate: 1, Per: time.Second, Burst: 128},                   // 1 ns: 18 min
		{Rate: 1, Per: day, Burst: 20, Src: &ir.Prefixes{}},       // 2^14 ns: half a year
		{Rate: 100, Per: time.Hour, Burst: 100, Bits: false},      // 2^5 ns
		{Rate: 1000, Per: time.Second, Burst: 12_000, Bits: true}, // 2^-3 ns
	}
	l := loadLimits(t, limits...)
	for i := range limits {
		limit := &limits[i]
		debt := float64(limit.Burst) * float64(limit.Per) / float64(limit.Rate) // at most 2^37 units
		wrap := math.Exp2(max(-8, math.Ceil(math.Log2(debt))-37) + 40)
		a := l.audit(t, i)
		frame := limitFrame(t, i, "10.1.2.3", "192.0.2.1", 60)
		now := time.Hour
		for range 60 {
			for range 30 {
				a.send(t, frame, now)
			}
			for range 30 {
				now += time.Duration(debt / 40)
				a.send(t, frame, now)
			}
			pause := float64(r.IntN(3)) + float64(r.IntN(9))/8
			now += time.Duration(pause*wrap + (r.Float64()-0.5)*debt)
		}
		a.check(t, 0.995)
	}
}
