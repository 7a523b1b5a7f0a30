// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// replyUnit is the unit of the time of flows, in nanoseconds.
const replyUnit = 1 << 32

// replyLives has conversations in the notation of TestReplies. Each has the time in seconds for which its last line passes after the other lines.
var replyLives = map[string]struct {
	talk    string
	seconds uint64
}{
	"SYN, unanswered": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA`, 60},
	"segment, unanswered": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 A
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 60},
	"TCP, open": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 24 * 3600},
	"TCP, ended by one side": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
> tcp 192.0.2.1:4000 > 198.51.100.7:443 FA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 24 * 3600},
	"TCP, ended by both": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 FA
> tcp 192.0.2.1:4000 > 198.51.100.7:443 FA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 120},
	"TCP, a reset arrives, perhaps a forged one": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 R
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 24 * 3600},
	"TCP, a reset of a port that is closed": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 RA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA`, 60},
	"TCP, a reset leaves": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
> tcp 192.0.2.1:4000 > 198.51.100.7:443 R
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 120},
	"TCP, opened again after a reset": {`> tcp 192.0.2.1:4000 > 198.51.100.7:443 S
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 SA
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 R
> tcp 192.0.2.1:4000 > 198.51.100.7:443 A
<+ tcp 198.51.100.7:443 > 192.0.2.1:4000 A`, 24 * 3600},
	"UDP, unanswered": {`> udp 192.0.2.1:4000 > 198.51.100.7:53
<+ udp 198.51.100.7:53 > 192.0.2.1:4000`, 30},
	"UDP6, unanswered": {`> udp [2001:db8::1]:4000 > [2001:db8::7]:53
<+ udp [2001:db8::7]:53 > [2001:db8::1]:4000`, 30},
	"UDP, answered": {`> udp 192.0.2.1:4000 > 198.51.100.7:53
<+ udp 198.51.100.7:53 > 192.0.2.1:4000
<+ udp 198.51.100.7:53 > 192.0.2.1:4000`, 180},
	"fragments": {`> udp 192.0.2.1:4000 > 198.51.100.7:53
<+ udp 198.51.100.7:53 > 192.0.2.1:4000 frag=later`, 180},
	"echo": {`> icmp 192.0.2.1 > 198.51.100.7 type=8
<+ icmp 198.51.100.7 > 192.0.2.1 type=0`, 30},
	"other protocol": {`> gre 192.0.2.1 > 198.51.100.7
<+ gre 198.51.100.7 > 192.0.2.1`, 600},
}

// TestReplyLives ages flows in each state. Their replies must pass for the given time, and at most a fiftieth and three units longer. They must not
// pass after half a cycle of the 16-bit clock, or shortly before a complete cycle. A reply restarts the time, unless it is a later fragment.
func TestReplyLives(t *testing.T) {
	testutil.RequireRoot(t)
	p := loadReplies(t)
	for name, life := range replyLives {
		t.Run(name, func(t *testing.T) {
			units := life.seconds * 1e9 / replyUnit
			over := units + units/50 + 3
			for age, want := range map[uint64]bool{0: true, units: true, over: false, over + 20: false, 1 << 15: false, 1<<16 - 50: false} {
				p.atAge(t, strings.Split(life.talk, "\n"), age, want, name != "fragments")
			}
		})
	}
}

// atAge plays all lines except the last one, ages the stored flows, and sends in the last line. If that line passes, it ages the flows again and
// repeats the line. If the clock advances by more than a unit meanwhile, it starts again.
func (p talker) atAge(t *testing.T, lines []string, age uint64, want, again bool) {
	t.Helper()
	for {
		began := image.Monotonic() / replyUnit
		p.forget(t)
		for _, line := range lines[:len(lines)-1] {
			way, packet, _ := strings.Cut(line, " ")
			frame := subject.FramesOf(t, packet)[0].Frame
			if way == ">" {
				p.leave(t, frame)
			} else if !p.arrive(t, frame) {
				t.Errorf("%s does not pass", packet)
			}
		}
		_, packet, _ := strings.Cut(lines[len(lines)-1], " ")
		last := subject.FramesOf(t, packet)[0].Frame
		p.age(t, age)
		a, err := p.AskAt(datapath.Question{Frame: last})
		if err != nil {
			t.Fatal(err)
		}
		got := [3]bool{ir.Verdict(a.Verdict) == ir.Pass, p.arrive(t, last)}
		p.age(t, age)
		got[2] = p.arrive(t, last)
		if image.Monotonic()/replyUnit > began+1 {
			continue
		}
		if expect := [3]bool{want, want, want && (again || age == 0)}; got != expect {
			t.Errorf("%d units later, asked, arriving, and as much later once more: passes is %t, want %t", age, got, expect)
		}
		return
	}
}

// forget empties the table.
func (p talker) forget(t *testing.T) {
	t.Helper()
	memory, release, err := p.Memory(image.ReplyFlows, image.ReplyFilter)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, m := range [][]byte{memory[image.ReplyFlows], memory[image.ReplyFilter][image.ReplySecretsSize:]} {
		for page := range usedPages(m) {
			clear(page)
		}
	}
}
