package control

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// Status is what runs, and what it has done.
type Status struct {
	Target     string         `json:"target"`
	Policy     string         `json:"policy"`
	Applied    time.Time      `json:"applied"`
	Generation int            `json:"generation"`
	Form       compile.Form   `json:"form"`
	Devices    []DeviceStatus `json:"devices"`
	Rules      []RuleStatus   `json:"rules"`
	Checks     []RuleStatus   `json:"checks"`
	Default    RuleStatus     `json:"default"`
	NotIP      RuleStatus     `json:"not_ip"`
	Sets       []SetStatus    `json:"sets"`
	Warnings   []string       `json:"warnings,omitempty"`
}

// DeviceStatus is a device that is filtered.
type DeviceStatus struct {
	Name       string `json:"name"`
	Stage      string `json:"stage"`
	Mode       string `json:"mode"`
	Generation int    `json:"generation"`
}

// RuleStatus is a rule, a check or the default, with what it decided since it was first applied.
type RuleStatus struct {
	Name    string `json:"name"`
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Line    int    `json:"line,omitempty"`   // in the policy file
	Merged  int    `json:"merged,omitempty"` // rules of the policy that this one stands for
}

// SetStatus is a named set.
type SetStatus struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // static, dynamic or local
	Entries  int    `json:"entries"`
	Capacity int    `json:"capacity"`
}

// Status reports what runs. It returns datapath.ErrNotLoaded when nothing does.
func (in Instance) Status() (*Status, error) {
	l, err := in.open()
	if err != nil {
		return nil, err
	}
	defer l.close()
	m := l.manifests[0]
	s := &Status{
		Target: "xdp", Policy: m.File, Applied: m.Applied, Form: m.Form, Generation: l.generations[0].Number,
	}
	if err := s.devices(l); err != nil {
		return nil, err
	}
	if err := s.counters(l, m); err != nil {
		return nil, err
	}
	return s, s.sets(l.generations[0], m)
}

func (s *Status) devices(l *live) error {
	for _, g := range l.generations {
		for _, d := range g.Devices {
			s.Devices = append(s.Devices, DeviceStatus{d.Name, "xdp", string(d.Mode), d.Generation})
		}
	}
	if len(l.generations) > 1 {
		s.warn("the last apply did not finish: devices run different generations; apply again")
	}
	gone, err := l.state.Gone()
	for _, d := range gone {
		s.warn("device %s has gone, and nothing filters what comes back under its name: apply again then", d)
	}
	return err
}

func (s *Status) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

func (s *Status) counters(l *live, m *manifest) error {
	counters, err := l.state.Counters()
	if err != nil || counters == nil {
		return err
	}
	defer counters.Close()
	slots := uint32(xdp.SlotRules)
	for _, r := range m.Rules {
		slots = max(slots, r.Slot+1)
	}
	counts, err := datapath.ReadCounters(counters, slots)
	if err != nil {
		return err
	}
	row := func(name, verdict string, slot uint32) RuleStatus {
		return RuleStatus{Name: name, Stage: "xdp", Verdict: verdict, Packets: counts[slot].Packets, Bytes: counts[slot].Octets}
	}
	for _, r := range m.Rules {
		status := row(r.Name, r.Verdict, r.Slot)
		status.Line, status.Merged = r.Line, r.Merged
		s.Rules = append(s.Rules, status)
	}
	for c := range packet.NumChecks {
		if m.Checks.Has(c) {
			s.Checks = append(s.Checks, row(c.String(), "drop", uint32(c)))
		}
	}
	s.Default = row("default", m.Default, xdp.SlotDefault)
	s.NotIP = row("not-ip", "pass", xdp.SlotNotIP)
	return nil
}

func (s *Status) sets(g *datapath.Generation, m *manifest) error {
	dynamic, err := openDynamic(g)
	if err != nil {
		return err
	}
	for _, e := range m.Sets {
		status := SetStatus{Name: e.Name, Kind: "static", Entries: e.Entries, Capacity: e.Max}
		if e.Dynamic >= 0 {
			status.Kind = "dynamic"
			status.Entries = countEntries(dynamic, e.Dynamic)
		}
		if e.Local {
			status.Kind = "local"
		}
		if status.Kind != "local" && status.Entries*10 >= status.Capacity*9 && e.Max > 0 && s.mayGrow(e) {
			s.warn("set %q is %d%% full: %d of %d entries", e.Name, status.Entries*100/e.Max, status.Entries, e.Max)
		}
		s.Sets = append(s.Sets, status)
	}
	return nil
}

// mayGrow reports whether a set can become fuller: one that is written in the policy is full by nature.
func (s *Status) mayGrow(e setEntry) bool { return e.Dynamic >= 0 || e.Entries < e.Max }

func countEntries(d *addrs.Dynamic, number int) int {
	if d == nil {
		return 0
	}
	return d.Sets[number].Count(monotonic())
}
