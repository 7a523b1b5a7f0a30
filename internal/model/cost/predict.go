package cost

// filter is the stage behind conntrack and the route lookup.
const filter = "filter"

// Flow is packets by where IP takes them.
type Flow uint8

// The flows. Before the route lookup a stage has one station, for All; behind it there may be one for each of the others.
const (
	All Flow = iota
	Local
	Forwarded
)

// Station is what a plan does at a stage to the packets of a flow, in this order.
type Station struct {
	Stage string
	Flow  Flow
	Steps []Step
}

// Step is a rule at a station.
type Step struct {
	Rule    string // its name in Mix.Rules
	Flow    Flow   // the packets that it can match
	Drops   bool
	Each    Asked // of every packet that comes to it
	Matched Asked // of those that it decides
}

// Asked counts what a rule asks.
type Asked struct{ Rules, Sets, Limits, Locals int }

// Prediction is what filtering is going to cost: the tests of rules, and of packets that are dropped all that they have
// cost until then. What packets that pass cost beside the tests is not in it, as no placement changes that.
type Prediction struct {
	PerPacket float64 `json:"per_packet"` // nanoseconds for each packet that arrives
	CPU       float64 `json:"cpu"`        // share of one CPU: 1 is all of it
}

// Predict is what a plan costs with a mix of packets. The stations are in the order in which packets meet them.
//
// A packet that passes comes to all stations of its flow, one that is dropped to those up to that which drops it. What
// arrives and is neither delivered nor forwarded nor dropped by a rule, such as ARP, comes to stations for All only.
func (m *Model) Predict(target string, stations []Station, mix Mix) Prediction {
	ns := 0.0
	left := mix.arriving(stations)
	for _, s := range stations {
		ns += m.station(target, s, mix, &left)
	}
	return Prediction{PerPacket: ns / max(float64(mix.Arrived), 1), CPU: ns / 1e9 / max(mix.Seconds, 1e-9)}
}

// station is the nanoseconds that all packets cost at a station. It takes off left what is dropped there.
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

// Rule is the nanoseconds of a step at a stage to which packets come of which it decides some.
func (m *Model) Rule(target, stage string, step *Step, come, decided float64, tracked bool) float64 {
	work := m.workAt(target, stage)
	ns := come*work.of(step.Each) + decided*work.of(step.Matched)
	if step.Drops {
		ns += decided * m.Drop(stage, tracked)
	}
	return ns
}

// Drop is what a packet costs that is dropped at a stage, but for the rules there.
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

// workAt is the work at a stage. What XDP leaves to later stages is done by nftables.
func (m *Model) workAt(target, stage string) Work {
	if w, ok := m.Work[target+"/"+stage]; ok {
		return w
	}
	return m.Work["nftables/"+stage]
}

// of is the nanoseconds of what is asked.
func (w Work) of(a Asked) float64 {
	return float64(a.Rules)*w.Rule + float64(a.Sets)*w.Set + float64(a.Limits)*w.Limit + float64(a.Locals)*w.Local
}

// volume is numbers of packets.
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

// only is the part of a flow.
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

// take subtracts, as far as there is anything.
func (v *volume) take(w volume) {
	v.local, v.forwarded, v.other = max(v.local-w.local, 0), max(v.forwarded-w.forwarded, 0), max(v.other-w.other, 0)
}

// arriving is all that comes to the first station: what IP has delivered and forwarded, what stations drop, and the rest.
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

// matched is the packets that a step decides. Those of a rule for both flows are shared between these like what passes;
// where nothing passes, all are local.
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
