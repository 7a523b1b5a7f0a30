// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Top is the traffic of a time span, and the decisions of the policy about this traffic.
type Top struct {
	Policy     string                   `json:"policy"`
	Generation int                      `json:"generation"`
	Target     string                   `json:"target"`
	Devices    []string                 `json:"devices"`
	Places     []control.DeviceStatus   `json:"places"` // where the program of each device runs at the end of this time
	Seconds    float64                  `json:"seconds"`
	Passed     Rate                     `json:"passed"`
	Dropped    Rate                     `json:"dropped"`
	ReplyFlows *control.ReplyFlowStatus `json:"reply_flows,omitempty"` // nil when XDP does not track replies
	UDP        *control.UDPStatus       `json:"udp,omitempty"`         // nil when no UDP service is protected
	Reasons    []ReasonRate             `json:"reasons"`               // packets that each reason counted in this time, the most frequent first
	Samples    *Samples                 `json:"samples,omitempty"`     // nil when samples could not be taken
	Warning    string                   `json:"warning,omitempty"`     // why samples could not be taken
}

// Rate is packets and bits a second.
type Rate struct {
	Packets float64 `json:"packets"`
	Bits    float64 `json:"bits"`
}

// ReasonRate is the rate of packets that a rule, a check or the default decided, by its counter.
type ReasonRate struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Stage   string `json:"stage"`
	Observe bool   `json:"observe,omitempty"`
	Beside  bool   `json:"beside,omitempty"` // another reason counts the same packets also, or this host sent the packets
	Rate
}

// Samples contains the most frequent sources and values in samples. If Verdicts is empty, the samples contain only packets that XDP passes.
type Samples struct {
	Packets      int                 `json:"packets"`            // how many samples were examined
	OneIn        uint32              `json:"one_in"`             // a sample stands for this many packets
	Lost         uint64              `json:"lost"`               // samples that were lost because they came too fast
	Verdicts     map[string]int      `json:"verdicts,omitempty"` // samples by verdict of XDP, if samples have a verdict
	Sources      []Talker            `json:"sources"`
	Destinations []Talker            `json:"destinations"`
	Fields       map[string][]Talker `json:"fields"` // by the policy's key; the values are in the policy's notation
}

// Talker is a prefix or a value, with its share of the packets.
type Talker struct {
	Key     string   `json:"key"`
	Packets float64  `json:"packets"` // a second
	Share   float64  `json:"share"`
	Dropped *float64 `json:"dropped,omitempty"` // the share of the talker's packets that XDP drops, if samples have a verdict
	Error   float64  `json:"error"`             // error of Packets and of the share, in percent: from sampling (95% confidence) and from counting in limited memory
}

// Watch observes the traffic in repeated steps.
type Watch struct {
	host   Host
	before *control.Status
	reader samples
	lost   uint64
	denied error // why there are no samples

	databases geo.Databases // databases of countries and autonomous systems
}

// samplesEach is the approximate number of samples that a Watch takes in each step.
const samplesEach = 20_000

// Watch starts to observe the running policy in steps of about the given length. It returns datapath.ErrNotLoaded when no policy runs.
func (h Host) Watch(ctx context.Context, span time.Duration) (*Watch, error) {
	w := &Watch{host: h}
	if err := w.look(ctx, span); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// look reads the counters. If another generation runs, it opens the devices again.
func (w *Watch) look(ctx context.Context, span time.Duration) error {
	s, err := w.host.Instance.Status(ctx)
	if err != nil {
		return err
	}
	if w.before == nil || w.before.Generation != s.Generation {
		if err := w.Close(); err != nil {
			return err
		}
		w.databases = w.host.Databases(ctx)
		if w.reader, w.denied = openSamples(w.host.Tap, deviceNames(s)); w.denied == nil {
			if err := probe(ctx, w.reader, samplesEach, span); err != nil {
				return err
			}
			if w.lost, err = w.reader.Lost(); err != nil {
				return err
			}
		}
		if s, err = w.host.Instance.Status(ctx); err != nil { // the counters after the probe
			return err
		}
	}
	w.before = s
	return nil
}

func deviceNames(s *control.Status) (names []string) {
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Next waits for a time span, and returns the traffic in that time. When another generation starts to run, Next begins again.
func (w *Watch) Next(ctx context.Context, span time.Duration) (*Top, error) {
	before := w.before
	views, samples, err := w.sample(ctx, span)
	if err != nil {
		return nil, err
	}
	if err := w.look(ctx, span); err != nil {
		return nil, err
	}
	if w.before.Generation != before.Generation {
		begin := *w.before
		begin.Read = begin.Read.Add(-span)
		before, samples = &begin, nil
	}
	t := Between(before, w.before)
	if w.denied != nil {
		t.Warning = fmt.Sprintf("no samples: %v", w.denied)
	} else if samples != nil {
		t.Samples = samples
		samples.fill(views, t.Seconds)
	}
	return t, nil
}

// sample takes samples for a time span. From their number it chooses the sampling rate of the next step.
func (w *Watch) sample(ctx context.Context, span time.Duration) (*Views, *Samples, error) {
	view := NewViews(w.databases)
	if w.denied != nil {
		periodic.Sleep(ctx, span)
		return view, nil, ctx.Err()
	}
	s := &Samples{OneIn: w.reader.OneIn()}
	n, err := take(ctx, w.reader, span, func(p sample.Sample) {
		s := suggest.NewSample(p)
		view.Add(&s)
	})
	if err != nil {
		return view, nil, err
	}
	lost, err := w.reader.Lost()
	if err != nil {
		return view, nil, err
	}
	s.Packets, s.Lost, s.Verdicts, w.lost = int(view.all.Packets), lost-w.lost, view.verdicts, lost
	came := float64(uint64(n)+s.Lost) * float64(s.OneIn)
	return view, s, w.reader.SetShare(shareFor(came, samplesEach))
}

// Between returns the decisions of the policy between two readings of its counters, without samples.
func Between(before, after *control.Status) *Top {
	t := &Top{
		Policy: after.Policy, Generation: after.Generation, Target: string(after.Target), Devices: deviceNames(after), Places: after.Devices,
		Seconds: after.Read.Sub(before.Read).Seconds(), ReplyFlows: after.ReplyFlows, UDP: after.UDP,
		Reasons: []ReasonRate{},
	}
	t.count(before, after)
	return t
}

// count computes rates from two readings of the counters.
func (t *Top) count(before, after *control.Status) {
	list, passed, dropped := Increases(before, after)
	t.Passed, t.Dropped = t.rate(passed), t.rate(dropped)
	for _, i := range list {
		t.Reasons = append(t.Reasons, ReasonRate{i.Name, i.Verdict, i.Stage, i.Observe, i.Beside, t.rate(i.Amount)})
	}
}

func (t *Top) rate(a Amount) Rate {
	return Rate{float64(a.Packets) / t.Seconds, 8 * float64(a.Bytes) / t.Seconds}
}

// heavyShare is the least share of the samples for a prefix to be listed.
const heavyShare = 0.01

// mostTalkers is the most talkers listed for each key.
const mostTalkers = 20

// Samples returns a summary of the samples that were counted in a time span. A sample stands for oneIn packets. lost is the number of lost samples.
func (v *Views) Samples(oneIn uint32, lost uint64, seconds float64) *Samples {
	s := &Samples{Packets: int(v.all.Packets), OneIn: oneIn, Lost: lost, Verdicts: v.verdicts}
	s.fill(v, seconds)
	return s
}

func (s *Samples) fill(of *Views, seconds float64) {
	view := of.all
	each := float64(s.OneIn) // packets that a sample stands for
	if of.stands > 0 && s.Packets > 0 {
		each = of.stands / float64(s.Packets)
		s.OneIn = uint32(each + 0.5)
	}
	if s.Packets > 0 {
		each *= 1 + float64(s.Lost)/float64(s.Packets)
	}
	talker := func(key string, packets, over, dropped uint64) Talker {
		t := Talker{
			Key: key, Packets: float64(packets) * each / seconds, Share: float64(packets) / float64(view.Packets),
			Error: sample.SamplingError(packets) + 100*float64(over)/float64(packets),
		}
		if len(s.Verdicts) > 0 {
			share := min(1, float64(dropped)/float64(packets))
			t.Dropped = &share
		}
		return t
	}
	prefixes := func(h, dropped *sample.Hierarchy) []Talker {
		list := []Talker{}
		for _, e := range h.Heavy(heavyShare) {
			list = append(list, talker(e.Key.String(), e.Packets, e.Over, dropped.Get(e.Key).Least()))
		}
		slices.SortStableFunc(list, func(a, b Talker) int { return cmp.Compare(b.Packets, a.Packets) })
		return list[:min(len(list), mostTalkers)]
	}
	s.Sources, s.Destinations, s.Fields = prefixes(view.From, of.dropped.From), prefixes(view.To, of.dropped.To), map[string][]Talker{}
	for _, f := range sample.TalkerFields {
		list := []Talker{}
		for _, c := range view.Top(f, mostTalkers) {
			if c.Packets > 0 && float64(c.Packets) >= heavyShare*float64(view.Packets) {
				list = append(list, talker(suggest.ValueText(f, c.Key), c.Packets, c.Over, of.dropped.Get(f, c.Key).Least()))
			}
		}
		s.Fields[f.String()] = list
	}
	for key, count := range of.all.origins() {
		list, dropped := []Talker{}, of.dropped.origins()[key]
		for _, c := range count.Top(mostTalkers) {
			if float64(c.Packets) >= heavyShare*float64(view.Packets) {
				list = append(list, talker(c.Key, c.Packets, c.Over, dropped.Get(c.Key).Least()))
			}
		}
		if count.Total() > 0 {
			s.Fields[key] = list
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() error {
	if w.reader == nil {
		return nil
	}
	err := w.reader.Close()
	w.reader = nil
	return err
}

// Top observes the traffic for a time span.
func (h Host) Top(ctx context.Context, span time.Duration) (*Top, error) {
	w, err := h.Watch(ctx, span)
	if err != nil {
		return nil, err
	}
	t, err := w.Next(ctx, span)
	return t, errors.Join(err, w.Close())
}
