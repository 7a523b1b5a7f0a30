// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"net/netip"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Views counts samples: all samples, and the samples that XDP dropped. It uses less than two megabytes.
type Views struct {
	all, dropped view
	verdicts     map[string]int
	stands       float64 // number of packets that the samples stand for; 0 when only the reader of the samples knows the number
	databases    geo.Databases
}

// view counts the sources and values in samples, and the sources' countries and autonomous systems, if a database has them.
type view struct {
	*sample.Talkers
	countries, asns *sample.Counter[string]
}

// originPlaces is the number of countries, and the number of autonomous systems, that are counted at the same time.
const originPlaces = 512

func newView() view {
	return view{sample.NewTalkers(), sample.NewCounter[string](originPlaces), sample.NewCounter[string](originPlaces)}
}

// origins returns the counts of the sources' countries and autonomous systems, by the policy's keys.
func (v *view) origins() map[string]*sample.Counter[string] {
	return map[string]*sample.Counter[string]{"country": v.countries, "asn": v.asns}
}

// NewViews makes empty Views. databases map sources to countries and autonomous systems.
func NewViews(databases geo.Databases) *Views {
	return &Views{all: newView(), dropped: newView(), verdicts: map[string]int{}, databases: databases}
}

// Databases returns the databases that sets of the running policy use.
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

// Add counts a sample, unless it is not IP.
func (v *Views) Add(s *suggest.Sample) {
	if s.Kind != packet.IP {
		return
	}
	v.stands += s.Stands
	counted := []*view{&v.all}
	if dropped(s.Verdict) {
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
	if s.Verdict != "" {
		v.verdicts[s.Verdict]++
	}
}

func (v *Views) origin(a netip.Addr) (country, asn string) {
	if v.databases == nil {
		return "", ""
	}
	return v.databases.Find(a)
}
