// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
	"github.com/floodwall/floodwall/policy/shorthand"
)

// order returns the order to apply the new policy: to the target and the devices of the running one, with a trial if the edit can affect this
// session. name is the entry that is new or gone.
func (o *editing) order(f *operate.PolicyFile, p *policy.Policy, name string) operate.Order {
	order := operate.Order{Confirm: o.confirm, Force: o.forced, Sessions: facts.Sessions()}
	order.AsRunning(f.Running)
	if f.Running.Choice != "" { // nobody named the target
		order.Target = string(control.TargetAuto)
	}
	if slices.Equal(order.Devices, f.Policy.DeviceNames()) {
		order.Devices = nil
	}
	touched := func(s facts.Session) bool { return affects(f.Policy, name, s, true) || affects(p, name, s, false) }
	if o.trial == 0 && !o.forced && slices.ContainsFunc(order.Sessions, touched) {
		order.Confirm = editTrial
	}
	return order
}

// affects reports whether a session may lose packets because the rule or service with a name is new, or gone. It may when an entry is new that drops,
// or when one is gone that passes.
func affects(p *policy.Policy, name string, s facts.Session, gone bool) bool {
	found := shorthand.Named(p, name)
	if found == nil {
		return false
	}
	var m policy.Match
	var passes bool
	if found.List == edit.Rules {
		m, passes = p.Rules[found.Index].Match, p.Rules[found.Index].Then == policy.Pass
	} else {
		service := p.Services[found.Index]
		m.Port, passes = service.Port, gone || service.From == nil // a service with `from` closes the port to all others
	}
	return passes == gone && touches(m, s)
}

// touches reports whether a match can have packets of a session. It looks neither at sets nor at destination addresses: they may be those of the
// session.
func touches(m policy.Match, s facts.Session) bool {
	const tcp, udp = 6, 17
	port := func(list []policy.Port, n uint16) bool {
		return list == nil || slices.ContainsFunc(list, func(p policy.Port) bool { return p.Proto != udp && p.First <= n && n <= p.Last })
	}
	from := m.From == nil || slices.ContainsFunc(m.From, func(a policy.Addr) bool {
		client := s.Client.Addr().Unmap()
		return a.Set != "" || a.Local || a.First.Compare(client) <= 0 && client.Compare(a.Last) <= 0
	})
	return from && port(m.Port, s.Server.Port()) && port(m.SPort, s.Client.Port()) && (m.Proto == nil || slices.Contains(m.Proto, tcp))
}

// timed does what holds for a time only: a ban, or a temporary rule. The file stays as it is.
func (o *editing) timed(ctx context.Context, r *shorthand.Request) error {
	ban := r.Verb == shorthand.Deny && r.Name == "" && r.From != "" && r.To == "" && r.Proto == "" && r.Port == nil && r.SPort == nil && r.Device == ""
	switch {
	case r.Verb == shorthand.Allow || r.Verb == shorthand.Limit || r.Verb == shorthand.Reject:
		return wording.Errorf(fmt.Sprintf("leave it out, and remove the entry later: systemd-run --on-active=%s floodwall delete NAME", r.For),
			"for %s: only `deny` can end by itself", wording.Quote(r.For))
	case o.file != "" || o.before != "" || o.noApply || o.dryRun || o.confirm != "":
		return wording.Errorf("leave the flags out, or leave `for` out",
			"for %s: a ban and a temporary rule are not in the file, and not on trial", wording.Quote(r.For))
	case ban:
		return block(ctx, o.env, []string{r.From}, blockFlags{duration: r.For, why: r.Comment, force: o.forced})
	}
	h, err := o.Host()
	if err != nil {
		return err
	}
	running, err := periodic.Within(ctx, func() (*control.Status, error) { return h.Instance.Status(ctx) })
	if err != nil {
		return err
	}
	p := &policy.Policy{}
	for _, d := range running.Devices {
		p.Devices = append(p.Devices, policy.Device{Name: d.Name})
	}
	_, entry, err := r.Entry(p)
	if err != nil {
		return err
	}
	rule, err := policy.ParseRule(entry.Line())
	if err != nil {
		return err
	}
	for _, s := range facts.Sessions() {
		if !o.forced && touches(rule.Match, s) { // a temporary rule stands before all others, and is never on trial
			return wording.Hinted(fmt.Sprintf("this rule could drop this SSH session, from %s to %s: not added", s.Client, s.Server),
				"use --force if that is meant")
		}
	}
	return addTemporary(ctx, o.env, operate.TemporaryOrder{Rule: entry.Line(), For: r.For, Why: r.Comment})
}
