// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// sampled returns data of top with two reasons and one sample.
func sampled() *operate.Top {
	return &operate.Top{
		Policy: "policy.yaml", Generation: 2, Target: "xdp", Devices: []string{"eth0", "eth1"}, Seconds: 1.5,
		Passed: operate.Rate{Packets: 10, Bits: 5120}, Dropped: operate.Rate{Packets: 1.2e6, Bits: 6e8},
		Reasons: []operate.ReasonRate{{Name: "banned", Verdict: "drop", Stage: "xdp", Rate: operate.Rate{Packets: 3}}, {Name: "tried", Verdict: "drop", Stage: "xdp", Observe: true}},
		Samples: &operate.Samples{
			Packets: 1, OneIn: 1000, Sources: []operate.Talker{{Key: "198.51.100.7", Packets: 900, Share: 0.9, Error: 250}},
			Fields: map[string][]operate.Talker{"port": {{Key: "udp/53", Share: 1}}},
		},
	}
}

// TestTables checks the tables of `top`: the head, the reasons, and the most frequent senders.
func TestTables(t *testing.T) {
	t.Parallel()
	half := 0.5
	top := sampled()
	lines := func(list []string) string {
		for i, line := range list {
			list[i] = strings.Join(strings.Fields(line), " ")
		}
		return strings.Join(list, "\n")
	}
	parts := func() (all []string) {
		for _, p := range SampleParts(top) {
			all = append(all, p.Lines()...)
		}
		return all
	}
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	check(lines(Head(top)), "policy.yaml, generation 2, xdp on eth0, eth1, over 1.5 s\npackets/s bits/s\npassed 10 5,120\ndropped 1.20M 600.00M")
	check(lines(Reasons(top).Lines()), "rules, checks and the default\npackets/s bits/s verdict stage reason\n3.0 0 drop xdp banned\n0 0 (drop) xdp tried")
	const of = " of what comes past XDP, by 1 sample, 1 in 1,000"
	check(lines(parts()), "sources"+of+"\npackets/s share error from\n900 90.0% ±100% 198.51.100.7\ndestinations"+of+": none\n"+
		"port"+of+"\npackets/s share error port\n0 100.0% ±0% udp/53")
	top.Samples.Verdicts = map[string]int{"drop": 1}
	top.Samples.Sources[0].Dropped = &half
	if got := lines(parts()); !strings.Contains(got, "share error dropped from\n900 90.0% ±100% 50% 198.51.100.7") {
		t.Error(got)
	}
	top.Samples, top.Reasons, top.Policy = nil, nil, "p\x1b[2J"
	if SampleParts(top) != nil || !slices.Equal(Reasons(top).Lines(), []string{"rules, checks and the default: none"}) || strings.Contains(Head(top)[0], "\x1b") {
		t.Errorf("%v, %v, %q", SampleParts(top), Reasons(top).Lines(), Head(top)[0])
	}
}

// TestSizes shows top on terminals of all sizes. Nothing may be wider or higher than the terminal. The last line must show the keys. A terminal with
// five lines must show the passed packets, the dropped packets, and the keys.
func TestSizes(t *testing.T) {
	t.Parallel()
	s := &screen{top: sampled()}
	for range 60 {
		s.top.Reasons = append(s.top.Reasons, operate.ReasonRate{Name: "a-rule-with-a-long-name", Verdict: "drop", Stage: "xdp"})
	}
	s.top.Warning = "samples take CAP_NET_RAW, which the daemon does not have under its systemd unit"
	for _, warned := range []bool{true, false} {
		if !warned {
			s.top.Warning = ""
		}
		for height := 1; height <= 80; height++ {
			for _, width := range []int{1, 20, 80, 250} {
				s.width, s.height, s.paused = width, height, height%2 == 0
				lines := s.lines()
				wide := slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > width })
				if len(lines) != height || wide || s.paused != strings.HasPrefix(lines[height-1], "PAUSED"[:min(width, 6)]) {
					t.Fatalf("%d×%d: %d lines:\n%s", width, height, len(lines), strings.Join(lines, "\n"))
				}
				text := strings.Join(lines, "\n")
				for _, want := range []string{"passed", "dropped", " 1.20M"} {
					if height >= 5 && width >= 20 && !strings.Contains(text, want) {
						t.Errorf("%d×%d: no %q in\n%s", width, height, want, text)
					}
				}
			}
		}
	}
}
