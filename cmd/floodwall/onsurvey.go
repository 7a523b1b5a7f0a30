// SPDX-License-Identifier: Apache-2.0

// This file surveys the host for `floodwall on`, and says in one screen what on will do.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/doctor"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/host/firstpolicy"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// survey has the facts that `on` shows before it asks.
type survey struct {
	file     string
	stands   bool // the file exists, and is used
	text     []byte
	policy   *policy.Policy
	devices  []string
	named    bool     // the operator named the devices
	override []string // devices that replace those of a policy that exists
	host     *firstpolicy.Host
	sessions []facts.Session
	trial    string           // how long the trial lasts
	dry      *control.Applied // the result of a dry run
	running  *control.Status  // nil: no policy runs
	noBoot   *boot.NoSystemdError
	managers []string // other programs that have firewall rules
}

// surveyFor surveys the host, reads the policy or makes the first one, and applies it in a dry run. So a policy that cannot be applied, or that would
// cut the operator's session, is refused before anything is asked.
func surveyFor(ctx context.Context, h operate.Host, devices []string, f onFlags) (s *survey, err error) {
	s = &survey{file: f.policy, sessions: facts.Sessions(), trial: f.confirm, named: len(devices) > 0}
	s.text, err = os.ReadFile(f.policy)
	if s.stands = err == nil; s.stands {
		if s.policy, err = policy.Parse(f.policy, s.text); err != nil {
			return nil, err
		}
		if s.devices = s.policy.DeviceNames(); len(devices) > 0 {
			s.devices, s.override = devices, devices
		}
		s.host, err = firstpolicy.ReadHost(s.devices)
	} else if _, dangling := os.Lstat(f.policy); dangling == nil && errors.Is(err, os.ErrNotExist) {
		return nil, wording.WithHint(fmt.Errorf("%s is a symbolic link to a file that does not exist", f.policy), "remove the link, or write that file")
	} else if errors.Is(err, os.ErrNotExist) {
		var text string
		if s.host, text, err = firstPolicy(f.policy, devices, "floodwall on eth0"); err != nil {
			return nil, err
		}
		s.text, s.devices = []byte(text), s.host.Devices
		s.policy, err = policy.Parse(f.policy, s.text)
	}
	if err != nil {
		return nil, err
	}
	if err := h.CanEnable(s.devices); err != nil && !errors.As(err, &s.noBoot) {
		return nil, err
	}
	if s.dry, _, err = h.Apply(ctx, operate.Order{Policy: f.policy, Text: s.text, Devices: s.override, DryRun: true, Sessions: s.sessions}); err != nil {
		return nil, err
	}
	if s.managers, err = doctor.Managers(ctx); err != nil {
		return nil, err
	}
	if s.running, err = h.Instance.Status(ctx); errors.Is(err, datapath.ErrNotLoaded) {
		err = nil
	}
	return s, err
}

// row is a line of the screen. title is empty for further lines of a part.
func row(title, text string) string { return fmt.Sprintf("%-10s %s", title, text) }

// mostUnfiltered is how many devices that are not filtered have a line.
const mostUnfiltered = 4

// mostLines is how many lines a part of the screen has. A policy with more is read in its file.
const mostLines = 12

// lines returns the screen.
func (s *survey) lines() (lines []string) {
	part := func(title string, texts []string) {
		if more := len(texts) - mostLines; more > 0 {
			texts = append(texts[:mostLines:mostLines], fmt.Sprintf("… and %d more", more))
		}
		for _, text := range texts {
			lines = append(lines, row(title, text))
			title = ""
		}
	}
	part("devices", s.deviceLines())
	part("unfiltered", s.unfilteredLines())
	part("beside", s.besideLines())
	part("open", s.openLines())
	part("closed", s.closedLines())
	part("you", s.sessionLines())
	part("protects", s.protectLines())
	part("policy", s.policyLines())
	return lines
}

func (s *survey) deviceLines() (texts []string) {
	why := "packets from outside arrive there, by a default route"
	switch {
	case s.named:
		why = "you named it"
	case s.stands:
		why = "the policy names it"
	}
	for _, d := range s.devices {
		texts = append(texts, fmt.Sprintf("%s: %s; target %s", d, why, s.dry.Target))
	}
	return texts
}

// unfilteredLines lists the other devices that are up, with the reasons.
func (s *survey) unfilteredLines() (texts []string) {
	why := "no default route leads there"
	switch {
	case s.stands && !s.named:
		why = "the policy does not name it"
	case s.named:
		why = "you did not name it"
	}
	for _, u := range s.host.Unfiltered {
		text := exposed.PlainName(u.Name) + ": " + why
		if u.Kind != "" {
			text = exposed.PlainName(u.Name) + ", " + u.Kind + ": " + why
		}
		texts = append(texts, text)
	}
	if more := len(texts) - mostUnfiltered; more > 0 {
		texts = append(texts[:mostUnfiltered:mostUnfiltered], fmt.Sprintf("… and %d more", more))
	}
	if texts != nil && !s.stands {
		texts = append(texts, "what arrives there passes; to filter it, too, name each device: floodwall on DEVICE…")
	}
	return texts
}

// besideLines names the other firewalls of this host, whose rules stay in force.
func (s *survey) besideLines() []string {
	if s.managers == nil {
		return nil
	}
	return []string{strings.Join(s.managers, ", ") + ": these rules stay, and what they drop stays closed, also where it is called open here"}
}

// openLines lists the services of the policy, with the programs that listen now, and the rules that pass packets to this host.
func (s *survey) openLines() (texts []string) {
	if s.policy.Default == policy.Pass {
		texts = append(texts, "everything that no rule of the policy drops (default: pass)")
	}
	known := slices.Concat(s.host.Services, s.host.Private, s.host.Unsure, s.host.LeftOut)
	for _, service := range s.policy.Services {
		var programs, ports, idle, from []string
		for _, p := range service.Port {
			ports = append(ports, p.String())
			listens := false
			for _, o := range known {
				if !exposed.Passes([]exposed.Opening{{Ports: []policy.Port{p}}}, o.Service) {
					continue
				}
				listens = true
				if word := programOf(o); word != "" && !slices.Contains(programs, word) {
					programs = append(programs, word)
				}
			}
			for _, r := range s.host.Ranges {
				if r.First != 0 && r.Port == p {
					listens, programs = true, append(programs, r.By())
				}
			}
			if !listens {
				idle = append(idle, p.String())
			}
		}
		for _, a := range service.From {
			from = append(from, a.String())
		}
		text := strings.Join(ports, ", ") + in(strings.Join(programs, ", "))
		if from != nil {
			text += " for " + strings.Join(from, ", ") + " alone"
		}
		if idle != nil {
			text += "; nothing listens now at " + strings.Join(idle, ", ")
		}
		texts = append(texts, text)
	}
	for _, r := range s.policy.Rules {
		if r.Then == policy.Pass && s.policy.Default != policy.Pass {
			texts = append(texts, r.Line())
		}
	}
	return texts
}

// in returns text in parentheses behind a space, or "" for no text.
func in(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// programOf names who serves a port: a program, or the destination of the host's NAT.
func programOf(s firstpolicy.Service) string {
	if s.To != "" {
		return "by NAT, " + s.To
	}
	return s.Program
}

// closedLines lists the services that run now and that the policy closes.
func (s *survey) closedLines() (texts []string) {
	openings := exposed.Openings(s.policy)
	if openings == nil {
		return nil
	}
	add := func(list []firstpolicy.Service, why string) {
		for _, o := range list {
			p := exposed.ClosedPort(o.Service, o.Program)
			if o.To != "" {
				p = exposed.ClosedPublished(o.Published())
			}
			if exposed.Passes(openings, o.Service) {
				continue
			}
			if why != "" {
				p.Text = p.Port + in(p.Program) + ": " + why
			}
			texts = append(texts, p.Text)
		}
	}
	add(s.host.Services, "")
	add(s.host.Private, "")
	add(s.host.Unsure, "it looks like a client's socket, which needs no opening")
	add(s.host.LeftOut, "only hosts on the same link use it")
	for _, r := range s.host.Ranges {
		if r.First == 0 || r.Closed(openings) {
			texts = append(texts, exposed.ClosedPublished(r).Text)
		}
	}
	for _, n := range s.host.Raw {
		if !exposed.Passes(openings, sockets.Service{Proto: n}) {
			texts = append(texts, exposed.ClosedProtocol(n).Text)
		}
	}
	for _, c := range s.host.Carriers {
		if c.Proto != 0 && !exposed.Passes(openings, sockets.Service{Proto: c.Proto}) {
			texts = append(texts, fmt.Sprintf("%s, which the kernel receives for %s: name it in a rule", exposed.ProtocolName(c.Proto), exposed.PlainName(c.Device)))
		}
	}
	if texts == nil {
		texts = append(texts, "everything else; nothing that listens now")
	}
	return texts
}

func (s *survey) sessionLines() (texts []string) {
	for _, o := range s.sessions {
		if o.Client.Addr().IsLoopback() {
			texts = append(texts, fmt.Sprintf("%s, by a tunnel or a proxy of this host, which nothing checks: log in anew before you press Enter", o.Client.Addr()))
			continue
		}
		texts = append(texts, fmt.Sprintf("%s, by SSH to port %d: new connections from there pass", o.Client.Addr(), o.Server.Port()))
	}
	if texts == nil {
		texts = append(texts, "no SSH session is known: you are at a console, or came another way")
	}
	return texts
}

// protectLines lists the protections of the policy, with their reasons.
func (s *survey) protectLines() (texts []string) {
	by := func(how string, has func(policy.Service) bool) {
		var ports []string
		for _, service := range s.policy.Services {
			for _, p := range service.Port {
				if has(service) {
					ports = append(ports, p.String())
				}
			}
		}
		if ports != nil {
			texts = append(texts, strings.Join(ports, ", ")+": "+how)
		}
	}
	by("SYN cookies during a SYN flood, so that clients still connect", func(o policy.Service) bool { return o.Syn != nil })
	by("known clients first during a UDP flood", func(o policy.Service) bool { return o.UDP != nil })
	by("limits for DNS queries, so that nobody abuses this resolver", func(o policy.Service) bool { return o.Guard != nil })
	if n := bits.OnesCount64(uint64(s.policy.Checks)); n > 0 {
		texts = append(texts, fmt.Sprintf("all ports: %s drop packets that no correct host sends", wording.Things(n, "check", "checks")))
	}
	if s.policy.Replies {
		texts = append(texts, "this host: replies to what it asks pass, and other packets of strangers do not")
	}
	if s.policy.Daemon.Detect.On && s.noBoot == nil {
		text := "this host: the daemon names attacks in `floodwall attacks` and on its page"
		if s.policy.Daemon.Detect.Auto.Max == 0 {
			text += ", and adds no rule by itself"
		}
		texts = append(texts, text)
	}
	return texts
}

func (s *survey) policyLines() []string {
	text := s.file + ", a new file with each line explained"
	if s.stands {
		text = s.file + ", which exists and stays as it is"
	}
	texts := []string{text}
	if r := s.running; r != nil {
		returns := "which returns unless you confirm"
		if r.Trial != nil {
			returns = "which is on trial itself: unless you confirm, the state before that trial returns"
		}
		texts = append(texts, fmt.Sprintf("it replaces generation %d of %s, %s", r.Generation, r.Policy, returns))
	}
	then := "systemd loads it at each boot, and runs the daemon"
	if s.noBoot == nil && !boot.Running() {
		then = "it comes back only at a boot with systemd, which does not run here now, and no daemon runs"
	}
	if s.noBoot != nil {
		then = "nothing loads it after a reboot, and no daemon runs: this host has no systemd"
	}
	return append(texts, fmt.Sprintf("on trial for %s; when you have confirmed it, %s", s.trial, then))
}
