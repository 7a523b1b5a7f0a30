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

// Top is what came to this host in some seconds, and what the policy did with it.
type Top struct {
	Policy     string                   `json:"policy"`
	Generation int                      `json:"generation"`
	Target     string                   `json:"target"`
	Devices    []string                 `json:"devices"`
	Seconds    float64                  `json:"seconds"`
	Passed     Rate                     `json:"passed"`
	Dropped    Rate                     `json:"dropped"`
	ReplyFlows *control.ReplyFlowStatus `json:"reply_flows,omitempty"` // nil where XDP tells no replies
	UDP        *control.UDPStatus       `json:"udp,omitempty"`         // nil where no UDP service is protected
	Reasons    []ReasonRate             `json:"reasons"`               // that counted packets in this time, the most frequent first
	Samples    *Samples                 `json:"samples,omitempty"`     // nil when none could be taken
	Warning    string                   `json:"warning,omitempty"`     // why
}

// Rate is packets and bits in a second.
type Rate struct {
	Packets float64 `json:"packets"`
	Bits    float64 `json:"bits"`
}

// ReasonRate is what a rule, a check or the default decided, by its counter.
type ReasonRate struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Stage   string `json:"stage"`
	Observe bool   `json:"observe,omitempty"`
	Beside  bool   `json:"beside,omitempty"` // another reason counts its packets too, or this host sent them
	Rate
}

// Samples is who and what is in the packets that came, by samples. Unless Verdicts is set, they are of what comes past XDP.
type Samples struct {
	Packets      int                 `json:"packets"`            // that were looked at
	OneIn        uint32              `json:"one_in"`             // of so many
	Lost         uint64              `json:"lost"`               // that were drawn, and came faster than they were read
	Verdicts     map[string]int      `json:"verdicts,omitempty"` // how many of the samples have each verdict of XDP, where they tell
	Sources      []Talker            `json:"sources"`
	Destinations []Talker            `json:"destinations"`
	Fields       map[string][]Talker `json:"fields"` // by the policy's key; values as a policy has them
}

// Talker is a prefix or a value with its part of the packets.
type Talker struct {
	Key     string   `json:"key"`
	Packets float64  `json:"packets"` // a second
	Share   float64  `json:"share"`
	Dropped *float64 `json:"dropped,omitempty"` // the share of its packets that XDP drops, where the samples tell
	Error   float64  `json:"error"`             // of packets and share, in percent of them: of sampling, with 95% confidence, and of counting in bounded memory
}

// Watch reads what comes again and again.
type Watch struct {
	host   Host
	before *control.Status
	reader samples
	lost   uint64
	denied error // why there are no samples

	databases geo.Databases // of countries and autonomous systems
}

// samplesEach is about how many samples a Watch takes each time.
const samplesEach = 20_000

// Watch begins to watch what runs, in steps of about such a time. It returns datapath.ErrNotLoaded when nothing does.
func (h Host) Watch(ctx context.Context, span time.Duration) (*Watch, error) {
	w := &Watch{host: h}
	if err := w.look(ctx, span); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// look reads the counters, and opens the devices anew when they changed.
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
		if s, err = w.host.Instance.Status(ctx); err != nil { // the counters of now
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

// Next waits for a time, and returns what came in it. With another generation it begins anew.
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

// sample takes samples for a time. It chooses the share of the next ones by how many there were.
func (w *Watch) sample(ctx context.Context, span time.Duration) (*Views, *Samples, error) {
	view := NewViews(w.databases)
	if w.denied != nil {
		periodic.Sleep(ctx, span)
		return view, nil, ctx.Err()
	}
	s := &Samples{OneIn: w.reader.OneIn()}
	n, err := take(ctx, w.reader, span, func(p sample.Sample) { view.Add(p) })
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

// Between is what the policy did between two readings of its counters, without samples.
func Between(before, after *control.Status) *Top {
	t := &Top{
		Policy: after.Policy, Generation: after.Generation, Target: string(after.Target), Devices: deviceNames(after),
		Seconds: after.Read.Sub(before.Read).Seconds(), ReplyFlows: after.ReplyFlows, UDP: after.UDP,
		Reasons: []ReasonRate{},
	}
	t.count(before, after)
	return t
}

// count makes rates of two readings of the counters.
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

// heavyShare is the part of the samples from which on a prefix is listed.
const heavyShare = 0.01

// mostTalkers is how many of a kind are listed.
const mostTalkers = 20

// Samples says who and what was counted, of one in so many packets of some seconds, and with so many samples lost.
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

// Top watches for a time.
func (h Host) Top(ctx context.Context, span time.Duration) (*Top, error) {
	w, err := h.Watch(ctx, span)
	if err != nil {
		return nil, err
	}
	t, err := w.Next(ctx, span)
	return t, errors.Join(err, w.Close())
}
