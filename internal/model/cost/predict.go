// SPDX-License-Identifier: Apache-2.0

package cost

// filter is the stage after conntrack and the route lookup.
const filter = "filter"

// Flow is a class of packets, by the place to which IP routes them.
type Flow uint8

// The flows. A stage before the route lookup has one station, for All. A later stage may have one for Local and one for
// Forwarded.
const (
	All Flow = iota
	Local
	Forwarded
)

// Station is the list of steps that a plan performs on the packets of a flow at a stage.
type Station struct {
	Stage string
	Flow  Flow
	Steps []Step
}

// Step is a rule at a station.
type Step struct {
	Rule    string // its name in Mix.Rules
	Flow    Flow   // the packets that the rule can match
	Drops   bool
	Each    Asked // tests for every packet that reaches the step
	Matched Asked // additional tests for the packets that the rule decides
}

// Asked counts the tests of a rule, by kind.
type Asked struct{ Rules, Sets, Limits, Locals int }

// Prediction is the predicted cost of filtering. It includes the tests of the rules. For dropped packets, it also includes all costs up to the drop.
// It does not include other costs of packets that pass, because no placement of rules changes these.
type Prediction struct {
	PerPacket float64 `json:"per_packet"` // nanoseconds for each packet that arrives
	CPU       float64 `json:"cpu"`        // share of one CPU; 1 is a whole CPU
}

// Predict returns the cost of a plan with a mix of packets. The stations must be in the order in which packets reach
// them.
//
// A packet that passes reaches all stations of its flow. A dropped packet reaches the stations up to the one that drops
// it. Some packets arrive, but are neither delivered nor forwarded nor dropped by a rule, such as ARP. They reach only
// the stations for All.
func (m *Model) Predict(target string, stations []Station, mix Mix) Prediction {
	ns := 0.0
	left := mix.arriving(stations)
	for _, s := range stations {
		ns += m.station(target, s, mix, &left)
	}
	return Prediction{PerPacket: ns / max(float64(mix.Arrived), 1), CPU: ns / 1e9 / max(mix.Seconds, 1e-9)}
}

// station returns the cost of all packets at a station, in nanoseconds. It subtracts the packets that the station drops
// from left.
func (m *Model) station(target string, s Station, mix Mix, left *volume) (ns float64) {
	here := left.of(s.Flow)
	ns = here * m.workAt(target, s.Stage).Hook
	for i := range s.Steps {
		step := &s.Steps[i]
		matched := mix.matched(step).only(s.Flow)
		decided := min(here, matched.of(All))
		ns += m.Rule(target, s.Stage, step, here, decided, mix.Tracked)
		if here -= decided; step.Drops {
			left.take(matched)
		}
	}
	return ns
}

// Rule returns the cost of a step at a stage, in nanoseconds. come is the number of packets that reach the step. decided is the number of these
// packets that the step decides.
func (m *Model) Rule(target, stage string, step *Step, come, decided float64, tracked bool) float64 {
	work := m.workAt(target, stage)
	ns := come*work.of(step.Each) + decided*work.of(step.Matched)
	if step.Drops {
		ns += decided * m.Drop(stage, tracked)
	}
	return ns
}

// Drop returns the cost of a packet that is dropped at a stage, without the rules of that stage.
func (m *Model) Drop(stage string, tracked bool) float64 {
	ns := m.Reach[stage]
	if stage == filter {
		ns += m.Route
	}
	if stage == filter && tracked {
		ns += m.Conntrack
	}
	return ns
}

// workAt returns the costs of the operations at a stage. If the target has no figures for the stage, it returns those of nftables, because nftables
// runs the later stages of an XDP plan.
func (m *Model) workAt(target, stage string) Work {
	if w, ok := m.Work[target+"/"+stage]; ok {
		return w
	}
	return m.Work["nftables/"+stage]
}

// of returns the cost of the tests, in nanoseconds.
func (w Work) of(a Asked) float64 {
	return float64(a.Rules)*w.Rule + float64(a.Sets)*w.Set + float64(a.Limits)*w.Limit + float64(a.Locals)*w.Local
}

// volume is the number of packets of each flow.
type volume struct{ local, forwarded, other float64 }

func (v *volume) of(f Flow) float64 {
	switch f {
	case Local:
		return v.local
	case Forwarded:
		return v.forwarded
	}
	return v.local + v.forwarded + v.other
}

// only returns the part of the volume that belongs to a flow. The rest is zero.
func (v volume) only(f Flow) volume {
	switch f {
	case Local:
		return volume{local: v.local}
	case Forwarded:
		return volume{forwarded: v.forwarded}
	}
	return v
}

func (v *volume) add(w volume) {
	v.local, v.forwarded, v.other = v.local+w.local, v.forwarded+w.forwarded, v.other+w.other
}

// take subtracts w from the volume. The numbers do not become negative.
func (v *volume) take(w volume) {
	v.local, v.forwarded, v.other = max(v.local-w.local, 0), max(v.forwarded-w.forwarded, 0), max(v.other-w.other, 0)
}

// arriving returns the packets that reach the first station: those that IP delivered and forwarded, those that stations
// drop, and the rest.
func (mix Mix) arriving(stations []Station) volume {
	all := volume{local: float64(mix.Local), forwarded: float64(mix.Forwarded)}
	for _, s := range stations {
		for i := range s.Steps {
			if s.Steps[i].Drops {
				all.add(mix.matched(&s.Steps[i]).only(s.Flow))
			}
		}
	}
	all.other = max(float64(mix.Arrived)-all.of(All), 0)
	return all
}

// matched returns the packets that a step decides. If the rule is for both flows, it is assumed to have the same ratio of local to forwarded packets
// as the traffic that passes. If nothing passes, all its packets count as local.
func (mix Mix) matched(step *Step) volume {
	n := float64(mix.Rules[step.Rule])
	local := 1.0
	switch passed := float64(mix.Local) + float64(mix.Forwarded); {
	case step.Flow == Forwarded:
		local = 0
	case step.Flow == All && passed > 0:
		local = float64(mix.Local) / passed
	}
	return volume{local: n * local, forwarded: n * (1 - local)}
}
