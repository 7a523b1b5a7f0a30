// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/policy"
)

// defaultMax is the capacity of a set whose policy declares none, in entries.
const defaultMax = 16_000_000

// lowering is the state of Lower: the program so far, and where its sets are.
type lowering struct {
	file           string
	program        *ir.Program
	named          map[string]int // index in program.Sets by the policy's name
	namesNamed     map[string]int // index in program.Names by the policy's name
	written        map[string]int // index in program.Sets by the text of addresses written in a rule
	local          int            // index of the set of the host's own addresses, -1 when nothing asks for it
	passReplies    bool           // whether replies to outgoing packets pass
	repliesTracked bool           // conntrack identifies the replies, on all targets
	notes          []string
}

// Lower gives a policy its meaning: a program that
//   - refers to sets by index; list files have been read, and addresses written in rules form sets of their own;
//   - tests fields by ranges of their values, from which `not` has been resolved;
//   - has explicit rules for services, for the ports that restricted services close, and for the traffic that `default: drop` must not drop;
//   - has the structural checks on which its rules and its default depend, even if the policy does not switch them on.
//
// It returns notes for the operator (a set that is nearly full). All errors are reported together, as policy.Errors. With errors, Lower also returns
// a program in which empty sets replace those that cannot be read. That program is useful only for finding more mistakes.
func Lower(p *policy.Policy) (*ir.Program, []string, error) {
	l := &lowering{
		file: p.File,
		program: &ir.Program{
			Checks: p.Checks, Observed: p.Observed, Default: verdict(p.Default), File: p.File, Placement: ir.Placement(p.Placement),
			RepliesFirst:  p.Replies && !p.RepliesTracked && (p.Checks|p.Observed)&packet.SenderChecks != 0,
			SampleTraffic: p.Daemon.Sample, SamplesAdapt: p.Daemon.Adapts, SamplesLeaving: p.Daemon.Detect.On,
		},
		named:       map[string]int{},
		namesNamed:  map[string]int{},
		written:     map[string]int{},
		local:       -1,
		passReplies: p.Replies, repliesTracked: p.RepliesTracked,
	}
	errs := append(l.sets(p), l.names(p)...)
	if (p.Checks | p.Observed).Has(packet.OwnSource) {
		l.localSet()
	}
	l.never(p.Never)
	for _, r := range p.Rules {
		l.rule(r)
	}
	errs = append(errs, l.services(p.Services, p.Essential)...)
	errs = append(errs, l.untracked(p)...)
	if p.Default == policy.Drop {
		l.essentials(p.Essential, p.DHCPServers, func(name string) bool { return !l.passReplies || name != essentialFragments })
	}
	if slices.ContainsFunc(l.program.Rules, func(r ir.Rule) bool { return r.Verdict.Answers() }) {
		l.localSet() // no answer may be sent to an address of this host
	}
	l.structural(p.Off | p.Observed)
	if n := l.dynamicSets(); n > image.MaxDynamicSets {
		errs = append(errs, l.tooMany(p, n))
	}
	if errs != nil {
		return l.program, nil, errs
	}
	return l.program, l.notes, nil
}

// Rule compiles a single rule, which is not part of a policy, to a program without any other rule. It returns an error if no packet can match the
// rule.
func Rule(r *policy.Rule) (*ir.Program, error) {
	program, _, err := Lower(&policy.Policy{Rules: []policy.Rule{*r}})
	if err != nil {
		return nil, err
	}
	if len(program.Rules) != 1 {
		return nil, errors.New("matches nothing")
	}
	if field, never := match.Impossible(program.Rules[0]); never {
		return nil, fmt.Errorf("no packet has such a %v", field)
	}
	return program, nil
}

// structural enables the checks on which the program's meaning depends. named has the checks that the policy switches off or lets only count. It adds
// a note about each of these that it enables.
func (l *lowering) structural(named packet.CheckSet) {
	p := l.program
	var against []ir.Structural
	for _, s := range p.Structural() {
		if named.Has(s.Check) {
			against = append(against, s)
		}
		p.Checks, p.Observed = p.Checks.With(s.Check), p.Observed.Without(s.Check)
	}
	if against != nil {
		l.notes = append(l.notes, "checks hold though `checks` switches them off, or has them count only: "+ir.StructuralText(against))
	}
}

func verdict(v policy.Verdict) ir.Verdict {
	return [...]ir.Verdict{policy.Pass: ir.Pass, policy.Drop: ir.Drop, policy.Reject: ir.Reject, policy.Truncate: ir.Truncate}[v]
}

func (l *lowering) sets(p *policy.Policy) policy.Errors {
	var errs policy.Errors
	for _, s := range p.Sets {
		set, err := lowerSet(p.File, s)
		if err != nil {
			errs = append(errs, placed(p.File, s.Pos, fmt.Sprintf("set %q", s.Name), err)...)
			set = ir.Set{Name: s.Name, Static: &addrs.Set{}, Max: 1}
		}
		if s.File != "" && s.Feed == nil && set.Entries*10 >= set.Max*9 {
			l.notes = append(l.notes, fmt.Sprintf("%sset %q is %d%% full: %d of %d entries; raise its max",
				l.program.Place(s.Pos.Line, s.Pos.Col), set.Name, set.Entries*100/set.Max, set.Entries, set.Max))
		}
		l.named[s.Name] = len(l.program.Sets)
		l.program.Sets = append(l.program.Sets, set)
	}
	return append(errs, tooDynamic(p)...)
}

// placed returns an error about a part of the policy, with the position of that part. For a list file it returns one error for each wrong line.
func placed(file string, at policy.Pos, what string, err error) (out policy.Errors) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			out = append(out, placed(file, at, what, one)...)
		}
		return out
	}
	mistake := &policy.Error{File: file, Line: at.Line, Col: at.Col, Msg: fmt.Sprintf("%s: %v", what, err)}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		mistake.Hint = hinted.Hint()
	} else if errors.Is(err, fs.ErrNotExist) {
		mistake.Hint = "a path that does not begin with / starts at the directory of the policy"
	}
	return policy.Errors{mistake}
}

// beside returns the path of a file that the policy names. A relative path in a policy is relative to the policy's directory.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// maxDynamic is the largest number of entries of all dynamic sets together. An entry takes a bucket of 64 bytes. If the sizes of the sets are powers
// of two, all sets together take 4 GB. Otherwise they take less than twice that amount.
const maxDynamic = 64_000_000

// tooDynamic returns an error if the dynamic sets together would take too much memory.
func tooDynamic(p *policy.Policy) policy.Errors {
	var names []string
	var last policy.Pos
	sum := 0
	for _, s := range p.Sets {
		if s.Dynamic == nil {
			continue
		}
		names, last = append(names, fmt.Sprintf("%q", s.Name)), s.Pos
		sum += s.Max
	}
	if sum <= maxDynamic {
		return nil
	}
	what := "dynamic set " + names[0] + " has a max of"
	if len(names) > 1 {
		what = "dynamic sets " + strings.Join(names, ", ") + " have together a max of"
	}
	return policy.Errors{{
		File: p.File, Line: last.Line, Col: last.Col,
		Msg:  fmt.Sprintf("%s %d entries, but at most %d are possible, which take 4 GB of memory", what, sum, maxDynamic),
		Hint: "lower max: of the sets",
	}}
}

// tooMany returns the error that a policy has too many dynamic sets. Its position is that of the last dynamic set.
func (l *lowering) tooMany(p *policy.Policy, n int) *policy.Error {
	e := &policy.Error{
		File: p.File, Msg: fmt.Sprintf("%d dynamic sets (own addresses included), at most %d can be used", n, image.MaxDynamicSets), Hint: "merge some",
	}
	for _, s := range p.Sets {
		if s.Dynamic != nil {
			e.Line, e.Col = s.Pos.Line, s.Pos.Col
		}
	}
	return e
}

func lowerSet(file string, s policy.Set) (ir.Set, error) {
	set := ir.Set{Name: s.Name, Max: s.Max}
	if set.Max == 0 {
		set.Max = defaultMax
	}
	switch {
	case s.Dynamic != nil:
		set.Dynamic = &ir.Dynamic{Timeout: s.Dynamic.Timeout}
	case s.Feed != nil:
		set.Live, set.Static = true, &addrs.Set{}
		if s.File != "" { // the file is a copy
			static, n, err := addrs.ReadFile(s.File, 0)
			if err != nil {
				return ir.Set{}, err
			}
			set.Static, set.Entries = static, n
		}
		set.Max = max(set.Max, set.Entries)
	case s.Geo != nil:
		static, n, err := geo.Read(beside(file, s.Geo.DB), geo.Wanted{Countries: s.Geo.Countries, ASNs: s.Geo.ASNs})
		if err != nil {
			return ir.Set{}, err
		}
		set.Live, set.Static, set.Entries = true, static, n
	case s.File != "":
		list, err := addrs.ReadList(beside(file, s.File), set.Max)
		if err != nil {
			return ir.Set{}, err
		}
		set.Static, set.Entries, set.Odd = list.Set, list.Entries, list.Odd
	default:
		set.Static, set.Entries = staticSet(s.Inline), len(s.Inline)
		set.Max = max(set.Entries, s.Max)
	}
	if s.File == "" { // several countries may contain most addresses; for addresses written in the policy, a note is enough
		return set, nil
	}
	return set, set.Static.NotMost()
}

func staticSet(ranges []policy.AddrRange) *addrs.Set {
	var b addrs.Builder
	for _, r := range ranges {
		b.AddRange(r.First, r.Last)
	}
	return b.Set()
}

// localSet returns the index of the set of the host's own addresses. The loader fills that set.
func (l *lowering) localSet() int {
	if l.local < 0 {
		l.local = len(l.program.Sets)
		l.program.Sets = append(l.program.Sets, ir.Set{Name: "local", Dynamic: &ir.Dynamic{Local: true}, Max: maxLocal})
	}
	return l.local
}

// maxLocal is the largest number of a host's own addresses and prefixes. A Kubernetes node has one address for each service.
const maxLocal = 65536

func (l *lowering) dynamicSets() int {
	n := 0
	for _, s := range l.program.Sets {
		if s.Dynamic != nil {
			n++
		}
	}
	return n
}

func (l *lowering) rule(r policy.Rule) {
	rule := ir.Rule{Name: r.Name, Unnamed: !r.Named, Line: r.Pos.Line, Col: r.Pos.Col, Verdict: verdict(r.Then), Placement: ir.Placement(r.Placement)}
	l.match(&rule, r.Match, false)
	l.match(&rule, r.Not, true)
	l.condition(&rule, r)
	l.program.Rules = append(l.program.Rules, rule)
}

// match adds the tests of m to a rule. If not is set, each test is negated.
func (l *lowering) match(rule *ir.Rule, m policy.Match, not bool) {
	if m.From != nil {
		rule.Src = append(rule.Src, l.addrMatch(m.From, not))
	}
	if m.To != nil {
		rule.Dst = append(rule.Dst, l.addrMatch(m.To, not))
	}
	for _, f := range fieldMatches(m) {
		if not {
			f.Values = ranges.Complement(f.Values, f.Field.Size())
		}
		rule.Match = match.Also(rule.Match, f)
	}
}

func (l *lowering) addrMatch(terms []policy.Addr, not bool) ir.AddrMatch {
	var written []policy.AddrRange
	var sets []int
	for _, t := range terms {
		switch {
		case t.Local:
			sets = append(sets, l.localSet())
		case t.Set != "":
			sets = append(sets, l.named[t.Set])
		default:
			written = append(written, t.AddrRange)
		}
	}
	if written != nil {
		sets = append(sets, l.writtenSet(written))
	}
	slices.Sort(sets)
	return ir.AddrMatch{Sets: slices.Compact(sets), Not: not}
}

// writtenSet returns the index of a set of addresses that are written in a rule. Rules with the same addresses share the set.
func (l *lowering) writtenSet(ranges []policy.AddrRange) int {
	key := fmt.Sprint(ranges)
	if i, ok := l.written[key]; ok {
		return i
	}
	i := len(l.program.Sets)
	l.written[key] = i
	l.program.Sets = append(l.program.Sets, ir.Set{Static: staticSet(ranges), Entries: len(ranges), Max: len(ranges)})
	return i
}

// services adds a rule for each service that passes the packets of its clients. After these rules, it adds a rule for each restricted service that
// drops the packets of all other sources. So two services with different sources may share a port.
func (l *lowering) services(services []policy.Service, said []policy.Essential) (errs policy.Errors) {
	l.tracked(services)
	for _, s := range services {
		if err := l.guard(s); err != nil {
			errs = append(errs, placed(l.file, s.Guard.Pos, fmt.Sprintf("service %q: guard", s.Name), err)...)
		}
		l.protect(s)
		l.flood(s)
		rule := ir.Rule{Name: s.Name, Kind: ir.RuleKindService, Line: s.Pos.Line, Col: s.Pos.Col}
		l.match(&rule, policy.Match{Port: s.Port, From: s.From}, false)
		l.program.Rules = append(l.program.Rules, rule)
		if s.Track == policy.TrackNot {
			l.program.Untracked.Services = append(l.program.Untracked.Services,
				ir.UntrackedService{Name: s.Name, Ports: fieldMatches(policy.Match{Port: s.Port})[0].Values, Here: s.Syn != nil})
		}
	}
	l.closed(services, true)
	l.replies(said)
	l.closed(services, false)
	return errs
}

// closed adds the rules that drop packets to restricted services from all other sources. Services over TCP only come before the rule for replies. A
// client that loses access must also lose its open connections, and no host sends requests from such a port. Services with UDP come after the rule
// for replies, because NTP and DNS servers send requests from their service port.
func (l *lowering) closed(services []policy.Service, tcp bool) {
	for _, s := range services {
		udp := slices.ContainsFunc(s.Port, func(p policy.Port) bool { return p.Proto != packet.ProtoTCP })
		if s.From == nil || udp == tcp {
			continue
		}
		rule := ir.Rule{Name: s.Name + ":others", Kind: ir.RuleKindService, Line: s.Pos.Line, Col: s.Pos.Col, Verdict: ir.Drop}
		l.match(&rule, policy.Match{Port: s.Port}, false)
		l.program.Rules = append(l.program.Rules, rule)
	}
}

// RepliesRule is the name of the rule that `replies: pass` adds.
const RepliesRule = "default:replies"

// asksReply reports whether a rule is the rule that passes replies.
func asksReply(r *ir.Rule) bool { return r.Kind == ir.RuleKindService && r.Name == RepliesRule }

// replies adds the rule that passes replies to packets that this host has sent.
//
// The rules for later fragments come before it. The rule for replies may need conntrack, which reassembles fragments. Fragments must be limited
// before they are reassembled.
func (l *lowering) replies(said []policy.Essential) {
	if !l.passReplies {
		return
	}
	of := policy.Match{State: []uint32{packet.StateEstablished, packet.StateRelated}}
	rule := ir.Rule{Name: RepliesRule, Kind: ir.RuleKindService, Reply: !l.repliesTracked, Match: fieldMatches(of)}
	if slices.ContainsFunc(said, func(e policy.Essential) bool { return e.Name == essentialFragments && e.Off }) {
		l.program.Rules = append(l.program.Rules, ir.Rule{
			Name: fragmentsOff, Kind: ir.RuleKindEssential, Verdict: ir.Drop, Match: fieldMatches(policy.Match{Fragment: []uint32{packet.FragmentLater}}),
		})
	} else {
		if rule.Reply {
			of.Fragment = []uint32{packet.FragmentLater}
			later := rule
			later.Name, later.Match = RepliesRule+":fragments", fieldMatches(of)
			l.program.Rules = append(l.program.Rules, later)
		}
		l.essentials(said, nil, func(name string) bool { return name == essentialFragments })
	}
	l.program.Rules = append(l.program.Rules, rule)
}

// repliesOfTracked is the name of the rule that passes the packets of tracked connections.
const repliesOfTracked = "tracked:replies"

// tracked adds stateful rules before services with `track: true`. Packets that belong to connections of these services pass. Packets that claim to
// belong to such a connection, but do not, are dropped. The rules match only the ports of these services, because every packet that they match must
// wait for conntrack. Packets of other connections pass by the rule for replies. If there is no such rule, the rule for established connections
// matches all ports.
func (l *lowering) tracked(services []policy.Service) {
	var ports []policy.Port
	var at policy.Pos
	for _, s := range services {
		if s.Track == policy.Track && s.Syn == nil { // a SYN protection drops invalid packets itself
			ports = append(ports, s.Port...)
			at = cmp.Or(at, s.Pos)
		}
	}
	if ports == nil {
		return
	}
	known := policy.Match{State: []uint32{packet.StateEstablished, packet.StateRelated}}
	if l.passReplies {
		known.Port = ports
	}
	l.program.Rules = append(l.program.Rules,
		ir.Rule{Name: repliesOfTracked, Kind: ir.RuleKindService, Line: at.Line, Col: at.Col, Match: fieldMatches(known)},
		ir.Rule{Name: "tracked:invalid", Kind: ir.RuleKindService, Line: at.Line, Col: at.Col, Verdict: ir.Drop,
			Match: fieldMatches(policy.Match{Port: ports, State: []uint32{packet.StateInvalid}})})
}
