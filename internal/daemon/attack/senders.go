// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"net/netip"
	"time"
)

// perSender estimates how many packets a second each sender sends on average. There may be few samples of the same sender, but the number of
// senders follows from the pairs of samples that have the same sender. Among n samples there are n(n-1)/2 pairs. If there are m senders, about one
// pair in m has the same sender. The result is 0 with too few samples.
//
// A forged source from a list comes again only after all other sources of the list. So each of thousands of forged sources sends far less than a
// genuine client of the service.
//
// The usual traffic is subtracted. It has `usual` packets a second, of which each sender sends usualEach. These account for a part of the samples and
// of the pairs.
func (s *sending) perSender(span time.Duration, usual, usualEach float64) float64 {
	n, pairs := 0.0, 0.0
	for _, c := range s.counts {
		n += float64(c)
		pairs += float64(c) * float64(c-1) / 2
	}
	rate := s.packets / span.Seconds()
	if n < leastSenders || usual >= rate {
		return 0
	}
	if usual > 0 && usualEach > 0 {
		part := n * usual / rate
		n, rate = n-part, rate-usual
		pairs -= part * part / 2 / (usual / usualEach)
	}
	return rate * max(1, pairs) * 2 / n / max(1, n-1)
}

const (
	leastSenders = 30  // least number of samples for an estimate
	scattered    = 0.2 // share of the usual rate of a sender; sources are forged when there are far more senders than usual and each sends less than this share
	manyTimes    = 100 // factor above the usual number of senders from which on there are far more senders than usual
)

// bySender returns the samples of the window, counted by load and sender.
func (t *traffic) bySender(now time.Time) map[*load]*sending {
	if t.sentAt.Equal(now) {
		return t.sent
	}
	of := map[*load]*sending{}
	t.sent, t.sentAt = of, now
	for i := range t.window.list {
		s := &t.window.list[i]
		for _, l := range []*load{s.place, t.total} {
			if of[l] == nil {
				of[l] = &sending{counts: map[netip.Addr]int{}}
			}
			of[l].counts[s.Sender()]++
			of[l].packets += s.Stands
		}
	}
	for l := range of {
		of[l].each = of[l].perSender(t.window.covers(now, windowTime), 0, 0)
	}
	return of
}

type sending struct {
	counts  map[netip.Addr]int
	packets float64
	each    float64
}

// scatters reports whether a load has far more senders than in quiet times, and each sends far less.
func (t *traffic) scatters(l *load, now time.Time) bool {
	if l.usualEach == 0 {
		return false
	}
	s := t.bySender(now)[l]
	if s == nil {
		return false
	}
	usual, _ := l.level(now)
	span := t.window.covers(now, windowTime)
	each := s.perSender(span, usual, l.usualEach)
	if each == 0 || each >= scattered*l.usualEach {
		return false
	}
	senders, usually := (s.packets/span.Seconds()-usual)/each, max(1, usual/l.usualEach)
	return senders >= manyTimes*usually
}
