// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/test/subject"
)

// TestLimitRecords makes mistakes in the records of limits, and checks that each is found.
func TestLimitRecords(t *testing.T) {
	const text = "devices: [eth0]\ndefault: pass\nchecks: off\nrules:\n" +
		"- {name: source, port: udp/53, over: {rate: 1000/s, per: from/24/56, burst: 100}, then: drop}\n" +
		"- {name: bits, port: udp/5002, over: {rate: 8mbit/s, per: to}, then: drop}\n- {name: slow, port: tcp/22, over: {rate: 3/h}, then: drop}\n"
	program := subject.Lower(t, text).Program
	s, err := Compile(program, false)
	if err != nil {
		t.Fatal(err)
	}
	right := s.world.limits
	for name, c := range map[string]struct {
		limit  int
		change func(*image.LimitInfo)
		want   string
	}{
		"a bit of IPv4 less":    {0, func(l *image.LimitInfo) { l.Src[0].Lo <<= 1 }, "of the source"},
		"a bit of IPv6 more":    {0, func(l *image.LimitInfo) { l.Src[1].Hi |= 1 << 7 }, "of the source"},
		"a hole in the prefix":  {0, func(l *image.LimitInfo) { l.Src[1].Hi &^= 1 << 20 }, "of the source"},
		"the other side":        {0, func(l *image.LimitInfo) { l.Src, l.Dst = l.Dst, l.Src }, "in place of"},
		"one for all":           {1, func(l *image.LimitInfo) { l.Prefixes = 0 }, "prefixes=0"},
		"packets, not bits":     {1, func(l *image.LimitInfo) { l.Bits = 0 }, "bits=0"},
		"too fast":              {2, func(l *image.LimitInfo) { l.Cost -= 1 << image.LimitFraction }, "each costs"},
		"too slow":              {1, func(l *image.LimitInfo) { l.Cost += l.Cost / 50 }, "each costs"},
		"another unit":          {2, func(l *image.LimitInfo) { l.Right++ }, "each costs"},
		"a burst of one more":   {0, func(l *image.LimitInfo) { l.Most += l.Cost >> image.LimitFraction }, "may come at once"},
		"a burst of a bit less": {1, func(l *image.LimitInfo) { l.Most-- }, "may come at once"},
	} {
		records := append([]image.LimitInfo{}, right...)
		c.change(&records[c.limit])
		if err := proveLimits(program, records); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := proveLimits(program, right[:2]); err == nil {
		t.Error("a record less")
	}
}
