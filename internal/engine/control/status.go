// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Status describes the running policy and its counts.
type Status struct {
	Target     plan.Target     `json:"target"`
	Choice     string          `json:"choice,omitempty"` // why this target was chosen
	Policy     string          `json:"policy"`
	Applied    time.Time       `json:"applied"`
	Generation int             `json:"generation"`
	Boot       string          `json:"-"` // as in ApplyOptions
	Read       time.Time       `json:"-"` // when its counters were read: rates must be computed from this time, since a busy host may deliver the answer later
	Form       xdpgen.Form     `json:"form,omitempty"`
	Trial      *TrialStatus    `json:"trial,omitempty"`
	Devices    []DeviceStatus  `json:"devices"`
	Rules      []RuleStatus    `json:"rules"`
	Checks     []RuleStatus    `json:"checks"`
	Default    RuleStatus      `json:"default"`
	NotIP      RuleStatus      `json:"not_ip"`
	Replies    *RuleStatus     `json:"replies,omitempty"` // answers that the program itself sends, if it has rules that send answers
	Sets       []SetStatus     `json:"sets"`
	Limits     []LimitStatus   `json:"limits,omitempty"`
	Verified   *VerifiedStatus `json:"verified,omitempty"` // if a guard verifies clients

	Names *NamesStatus `json:"names,omitempty"` // if a guard records which names were answered

	ReplyFlows *ReplyFlowStatus `json:"reply_flows,omitempty"` // if replies pass, and XDP recognises them

	UDP *UDPStatus `json:"udp,omitempty"` // if services are protected from floods over UDP

	Protections []ProtectionStatus `json:"protections,omitempty"`

	Placement *PlacementStatus `json:"placement,omitempty"` // the result of Placement

	Repairs generation.Repairs `json:"repairs"`

	Origin *manifest.Origin `json:"-"` // as in ApplyOptions

	Ports []exposed.Port `json:"ports,omitempty"` // ports that listen and are closed, or are open while nothing listens, if the policy drops by default

	Openings []exposed.Opening `json:"-"` // as in the manifest

	Open     []string `json:"open,omitempty"` // parts of the policy that are missing in the kernel: packets may pass that the policy drops
	Warnings []string `json:"warnings,omitempty"`

	Leftovers []string `json:"leftovers,omitempty"` // rulesets that also decide although no policy in force owns them: they may drop packets that the policy passes
}

// TrialStatus is the status of a policy on trial.
type TrialStatus struct {
	Left    float64 `json:"left"`       // seconds until the previous policy returns
	Returns int     `json:"returns_to"` // the generation that returns; 0: none
}

// DeviceStatus is a device that is filtered.
type DeviceStatus struct {
	Name       string     `json:"name"`
	Stage      plan.Stage `json:"stage"` // the first stage at which rules run
	Mode       string     `json:"mode,omitempty"`
	Since      *time.Time `json:"since,omitempty"`    // when the device got a program in this mode
	ByFlood    bool       `json:"by_flood,omitempty"` // the daemon changes the mode as a flood begins and ends
	Generation int        `json:"generation"`

	XDP  policy.XDPTime `json:"xdp,omitempty"`  // when the program runs at XDP: always, flooded or never
	Why  string         `json:"why,omitempty"`  // why that holds, and why the mode does not change
	Move *datapath.Move `json:"move,omitempty"` // the last change of the mode; nil: none
}

// RuleStatus is a rule, a check or the default. The counts are from the time since it was first applied.
type RuleStatus struct {
	Name    string     `json:"name"`
	Stage   plan.Stage `json:"stage"`
	Why     string     `json:"why,omitempty"` // why it has this stage
	Verdict string     `json:"verdict"`
	Packets uint64     `json:"packets"`
	Bytes   uint64     `json:"bytes"`             // length of the frames, without VLAN tags that the kernel has removed
	Line    int        `json:"line,omitempty"`    // the line in the policy file
	Merged  int        `json:"merged,omitempty"`  // the number of rules of the policy that were merged into this one
	Observe bool       `json:"observe,omitempty"` // whether it only counts

	Temporary *manifest.Temporary `json:"temporary,omitempty"` // set for a temporary rule, which is not in the policy and has an end
	// Uncounted says that the rule has no counter in its present place. The counts are from an earlier place.
	Uncounted bool `json:"uncounted,omitempty"`

	// Beside says that this line counts packets that a rule also counts, or packets that this host sends.
	Beside bool `json:"-"`
}

// SetStatus is a named set.
type SetStatus struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // static, dynamic, local, live (updated when a list or a database changes) or names (of domains)
	Entries  int    `json:"entries"`
	Capacity int    `json:"capacity"`
}

// VerifiedStatus is the number of clients that guards have verified by answers over TCP. An IPv6 client is a /64.
type VerifiedStatus struct {
	Clients  int `json:"clients"`
	Capacity int `json:"capacity"`
}

// ReplyFlowStatus is the status of the table of flows that started inside. Replies to these flows pass.
type ReplyFlowStatus struct {
	Flows     int    `json:"flows"`
	Capacity  int    `json:"capacity"`
	Displaced uint64 `json:"displaced"` // number of flows removed to make space for new ones, since the program was loaded
	Refused   uint64 `json:"refused"`   // number of flows not added, because no other flow could be removed
}

// Status returns the status of the running policy. It returns datapath.ErrNotLoaded when no policy runs.
func (in Instance) Status(ctx context.Context) (s *Status, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		s, err = in.status(ctx, l)
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		err = in.ended(ctx, err)
	}
	return s, err
}

// Decided returns the part of Status that counts packets: rules, checks, the default, packets that are not IP, and the number of the generation.
func (in Instance) Decided(ctx context.Context) (s *Status, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		g := l.Generations[0]
		if err := g.Foreign(); err != nil {
			return err
		}
		s = &Status{Generation: g.Number}
		return s.counters(ctx, l, g)
	})
	return s, err
}

func (in Instance) status(ctx context.Context, l *generation.Live) (s *Status, err error) {
	g := l.Generations[0]
	if err := g.Foreign(); err != nil {
		return nil, err
	}
	m := g.Manifest
	s = &Status{
		Target: m.Target, Choice: m.Choice, Policy: m.File, Applied: m.Applied, Form: m.Form, Generation: g.Number, Boot: m.Boot,
		Origin: m.Origin, Openings: m.Openings,
		Rules: []RuleStatus{}, Checks: []RuleStatus{}, Sets: []SetStatus{}, // in JSON no list is null
	}
	if l.Trial != nil {
		s.Trial = &TrialStatus{l.Trial.Left.Seconds(), l.Trial.Old}
	}
	s.devices(l, in.HasDaemon())
	if err := s.whole(ctx, in, l, g); err != nil {
		return nil, err
	}
	if s.Repairs, err = generation.ReadRepairs(l.State, g.Number); err != nil {
		return nil, err
	}
	s.checkTags(m)
	s.checkLater(m, g)
	if g.Program != nil {
		s.checkSending(m, g.Program.Devices)
		s.checkOrder(g.Program.Devices)
	}
	for i := range m.Live {
		of := lists.StatusOf(in.Feeds, &m.Live[i])
		if text := of.Alert(); text != "" {
			s.warn("%s", text)
		}
	}
	if warning := in.listsWaitFor(m.Live); warning != "" {
		s.warn("%s", warning)
	}
	if err := s.counters(ctx, l, g); err != nil {
		return nil, err
	}
	for _, warning := range []string{in.bansWaitFor(m), in.settingsWaitFor(m)} {
		if warning != "" {
			s.warn("%s", warning)
		}
	}
	unread, err := in.samplesUnread(g)
	if err != nil {
		return nil, err
	}
	if unread != "" {
		s.warn("%s", unread)
	}
	if err := s.limits(g); err != nil {
		return nil, err
	}
	if err := s.reportProtections(g); err != nil {
		return nil, err
	}
	if err := s.verified(g); err != nil {
		return nil, err
	}
	if err := s.names(g); err != nil {
		return nil, err
	}
	if err := s.replyFlows(g); err != nil {
		return nil, err
	}
	return s, s.sets(ctx, l, g)
}

func (s *Status) devices(l *generation.Live, daemon bool) {
	for _, g := range l.Generations {
		if g.Program == nil {
			for _, name := range g.Manifest.Devices {
				s.Devices = append(s.Devices, DeviceStatus{Name: name, Stage: g.Manifest.FirstStage(), Generation: g.Number})
			}
			continue
		}
		for _, d := range g.Program.Devices {
			s.Devices = append(s.Devices, s.device(l, g, d, daemon))
		}
	}
	if len(l.Generations) > 1 {
		s.warn("the last apply did not finish: devices run different generations; apply again")
	}
}

// device returns the status of a device that has a program. It warns if nothing moves the program to XDP.
func (s *Status) device(l *generation.Live, g *generation.Generation, d *datapath.Device, daemon bool) DeviceStatus {
	of := DeviceStatus{Name: d.Name, Stage: stageIn(d.Mode), Mode: string(d.Mode), Since: &d.Since, Generation: d.Generation}
	home, move := g.Manifest.Home(d.Name), g.Moves[d.Name]
	of.XDP, of.Why = home.When, cmp.Or(whyNotMoved(g, d), move.Refused)
	if of.Why == "" {
		of.ByFlood, of.Why = daemon, cmp.Or(home.Cost, "the policy says `xdp: flooded`")
		if !daemon {
			of.XDP, of.Why = policy.XDPAlways, of.Why+", but `floodwall daemon` does not run"
			if l.Trial == nil && d.Mode == datapath.TC && move.Mode == datapath.TC {
				s.warn("device %s is at tc, and `floodwall daemon` does not run: no flood moves it to XDP; `floodwall repair` moves it to XDP", d.Name)
			}
		}
	}
	if move.Mode == d.Mode { // else the device got its mode without a move
		of.Move = &move
	}
	return of
}

// stageIn returns the stage at which a device's program runs in a mode.
func stageIn(mode datapath.Mode) plan.Stage {
	if mode == datapath.TC {
		return plan.StageTC
	}
	return plan.StageXDP
}

func (s *Status) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

// counters fills in the counts of rules, checks and the default from all places in the kernel.
func (s *Status) counters(ctx context.Context, l *generation.Live, g *generation.Generation) error {
	c, err := l.Counts(ctx, g)
	if err != nil {
		return err
	}
	s.Read = c.Read
	m := g.Manifest
	for i, r := range m.Rules {
		n := c.Rule(i, r)
		s.Rules = append(s.Rules, RuleStatus{
			Name: r.Name, Stage: r.Stage, Why: r.Why, Verdict: r.Verdict, Packets: n.Packets, Bytes: n.Bytes,
			Line: r.Line, Merged: r.Merged, Observe: r.Observe, Temporary: m.TemporaryOf(i),
		})
	}
	s.guards(m, c)
	s.outcomes(m, c)
	for check := range packet.NumChecks {
		n, stage, done := c.Check(check)
		if (m.Checks | m.Observed).Has(check) && done {
			s.Checks = append(s.Checks, RuleStatus{
				Name: check.String(), Stage: stage, Verdict: "drop", Packets: n.Packets, Bytes: n.Bytes, Observe: m.Observed.Has(check),
			})
		}
	}
	n := c.ByDefault()
	s.Default = RuleStatus{Name: "default", Stage: m.At.Stage, Why: m.At.Why, Verdict: m.Default, Packets: n.Packets, Bytes: n.Bytes,
		Uncounted: m.Uncounted()}
	n = c.Slot(image.SlotNotIP)
	s.NotIP = RuleStatus{Name: "not-ip", Stage: m.FirstStage(), Verdict: "pass", Packets: n.Packets, Bytes: n.Bytes}
	if slices.ContainsFunc(m.Rules, func(r manifest.Rule) bool { return slices.Contains(ir.Answering(), r.Verdict) }) {
		n = c.Slot(image.SlotReplies)
		s.Replies = &RuleStatus{Name: "replies", Stage: plan.StageXDP, Verdict: "sent", Packets: n.Packets, Bytes: n.Bytes, Beside: true}
	}
	return nil
}

func (s *Status) sets(ctx context.Context, l *generation.Live, g *generation.Generation) error {
	for _, e := range g.Manifest.Sets {
		status := SetStatus{Name: e.Name, Kind: "static", Entries: e.Entries, Capacity: e.Max}
		switch {
		case e.Names:
			status.Kind = "names"
		case e.Local:
			status.Kind = "local"
		case e.Dynamic >= 0:
			status.Kind = "dynamic"
		case g.Manifest.LiveOf(e.Name) != nil:
			status.Kind = "live"
		}
		if e.Dynamic >= 0 {
			n, err := l.CountEntries(ctx, g, e)
			if err != nil {
				return err
			}
			status.Entries = n
		}
		if status.Kind != "local" && status.Entries*10 >= status.Capacity*9 && e.Max > 0 && s.mayGrow(e) {
			s.warn("set %q is %d%% full: %d of %d entries", e.Name, status.Entries*100/e.Max, status.Entries, e.Max)
		}
		s.Sets = append(s.Sets, status)
	}
	return nil
}

// mayGrow reports whether a set can get more entries. A set that is written in the policy is always full.
func (s *Status) mayGrow(e manifest.Set) bool { return e.Dynamic >= 0 || e.Entries < e.Max }
