package operate

import (
	"context"
	"net/netip"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Views count samples: all of them, and those that XDP dropped. They take less than two megabytes.
type Views struct {
	all, dropped view
	verdicts     map[string]int
	stands       float64 // packets that the samples stand for; 0 where only their reader knows
	databases    geo.Databases
}

// view counts who and what is in samples, and where sources are, as far as a database says.
type view struct {
	*sample.Talkers
	countries, asns *sample.Counter[string]
}

// originPlaces is how many countries, and how many autonomous systems, are counted at a time.
const originPlaces = 512

func newView() view {
	return view{sample.NewTalkers(), sample.NewCounter[string](originPlaces), sample.NewCounter[string](originPlaces)}
}

// origins are the counts of where sources are, by the policy's keys.
func (v *view) origins() map[string]*sample.Counter[string] {
	return map[string]*sample.Counter[string]{"country": v.countries, "asn": v.asns}
}

// NewViews makes empty Views. Databases say where sources are.
func NewViews(databases geo.Databases) *Views {
	return &Views{all: newView(), dropped: newView(), verdicts: map[string]int{}, databases: databases}
}

// Databases are those that sets of the policy that runs are made of.
func (h Host) Databases(ctx context.Context) geo.Databases {
	sets, err := h.Live(ctx)
	if err != nil || h.finder == nil {
		return nil
	}
	var files []string
	for _, s := range sets {
		if s.Geo != nil {
			files = append(files, s.Geo.File)
		}
	}
	return h.finder.Open(files)
}

// Add counts a sample, unless it is not IP. It returns what it has read.
func (v *Views) Add(p sample.Sample) suggest.Sample {
	s := suggest.NewSample(p.Frame, p.Length)
	v.AddRead(p, &s)
	return s
}

// AddRead counts a sample that was read already, unless it is not IP.
func (v *Views) AddRead(p sample.Sample, s *suggest.Sample) {
	if s.Kind != packet.IP {
		return
	}
	v.stands += p.Stands
	counted := []*view{&v.all}
	if dropped(p.Verdict) {
		counted = append(counted, &v.dropped)
	}
	country, asn := v.origin(s.Src)
	for _, to := range counted {
		to.Add(&s.Packet)
		if country != "" {
			to.countries.Add(country)
		}
		if asn != "" {
			to.asns.Add(asn)
		}
	}
	if p.Verdict != "" {
		v.verdicts[p.Verdict]++
	}
}

func (v *Views) origin(a netip.Addr) (country, asn string) {
	if v.databases == nil {
		return "", ""
	}
	return v.databases.Find(a)
}
