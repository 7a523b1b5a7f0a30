// SPDX-License-Identifier: Apache-2.0

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

// An audit compares one limit with the exact model. It counts the packets that the model passes, and checks that the program never passes more than
// slightly above the limit.
type audit struct {
	*limited
	limit  int
	model  *ir.Limiter // of the limit
	ceil   *ir.Limiter // of the same limit with a burst that is larger by one packet
	frames [][]byte
	counts map[string]*counts // for each combination of charged prefixes
}

type counts struct{ model, got int }

// audit returns an audit of a limit, for packets like frames.
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

// send sends a packet. It fails the test if more packets have passed in any span of time than the limit allows.
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

// charged returns the name of the prefixes to which a packet is charged. Sources with the same prefixes share the rate, in no fixed proportion.
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

// check fails the test if a prefix got less than the given share of the packets that the model passes, minus one packet.
func (a *audit) check(t *testing.T, share float64) {
	t.Helper()
	for who, c := range a.counts {
		if float64(c.got) < share*float64(c.model)-1 {
			t.Errorf("limit %+v: %d packets passed of %s, the model passes %d", a.program.Limits[a.limit], c.got, who, c.model)
		}
	}
}

// logUniform returns a random number from a log-uniform distribution between least and most.
func logUniform(r *rand.Rand, least, most float64) float64 {
	return math.Exp(math.Log(least) + r.Float64()*math.Log(most/least))
}

// randomLimit returns a random limit of 1 packet a day to 10M a second, or of up to 100 Gbit/s.
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

// interval returns the time in which the rate of a limit allows one packet of the given length in bytes.
func interval(l *ir.Limit, bytes int) time.Duration {
	amount := 1.0
	if l.Bits {
		amount = 8 * float64(bytes)
	}
	return time.Duration(max(1, amount*float64(l.Per)/float64(l.Rate)))
}

// TestLimitModel sends packets at random times through random limits, and compares the result with the exact model.
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

// random sends bursts, steady traffic of up to four times the rate, and pauses of up to some days. The times are random.
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

// TestLimitPrecision sends three times the rate to the limits with the largest and the smallest numbers, for such a long time that the burst hardly
// has an influence.
func TestLimitPrecision(t *testing.T) {
	limits := []ir.Limit{
		{Rate: 1, Per: day, Burst: 5},
		{Rate: 7, Per: day, Burst: 2},
		{Rate: 1000, Per: time.Second, Burst: 2000},
		{Rate: 999_983, Per: time.Second, Burst: 5},
		{Rate: 9_999_991, Per: time.Second, Burst: uint64(testutil.Scaled(100_000, 10_000_000))}, // a limit in bits, below, has the largest burst
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

// precise uses up the burst of a limit at once, and then measures the rate.
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

// drain sends large packets, and then small packets, until the burst of a limit has no more space.
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

// repeat charges a limit with many equal packets at the same time.
func (l *limited) repeat(t *testing.T, frame []byte, now time.Duration, times int) {
	t.Helper()
	if _, err := l.Native().Run(question(frame, now, times)); err != nil {
		t.Fatal(err)
	}
}

// question returns the run options that charge a packet to the limits of a loaded program: a struct question of bpf/explain.h and the frame.
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

// TestLimitWrap sends packets of a prefix again after a pause. The pauses are near the time in which the words of its table wrap around, and near
// multiples and fractions of that time.
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
