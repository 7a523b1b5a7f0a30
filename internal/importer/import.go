package importer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Options say how to import.
type Options struct {
	Format    Format   // what the files are; the formats of iptables and ipset may be given together
	Devices   []string // through which packets come in from outside; empty: those that the rules name
	Router    bool     // the policy is for packets that are forwarded, too, even if chain FORWARD has no rules
	ListFiles bool     // large sets become list files
}

// Result is a policy and what there is to say about it.
type Result struct {
	Policy string
	Lists  []List   // to be written beside the policy
	Rules  int      // in the policy
	Sets   int      // in the policy
	Lost   []Remark // what has no equal in the policy
	Notes  []Remark // what changes no verdict, and the user may want to know
	Drops  Drops
	Open   string // why the policy passes everything though the files drop something, or ""
}

// Drops counts the rules of the input that drop or reject, and base chains whose policy is to drop.
type Drops struct {
	Input  int `json:"input"`  // all: the sum of the others
	Policy int `json:"policy"` // those that rules of the policy say, wholly or in part
	Lost   int `json:"lost"`   // those that only Lost names
	Aside  int `json:"aside"`  // those that are about other packets, or that no packet gets to: Notes names each
}

// LostRules is how many rules of the input have no equal, or only in part.
func (r *Result) LostRules() int { return total(r.Lost) }

// Import makes a policy of files. It has the verdicts that the files' rules give packets that come in from outside:
//   - base chains are asked in the kernel's order, user chains where rules lead to them, and first-match rules come out;
//   - rules that differ in one part, as an address, become one rule, and those for IPv4 and IPv6 one for both;
//   - a rule that has no equal is left out so that those after it keep their meaning, and is reported.
//
// Errors are InputError: a file that is not what it is said to be, or is cut off.
func Import(ctx context.Context, sources []Source, o Options) (*Result, error) {
	rep := &report{}
	rs, families, err := read(ctx, sources, o.Format, rep)
	if err != nil {
		return nil, err
	}
	devices := o.Devices
	if len(devices) == 0 {
		if devices, err = rs.chooseDevices(rep); err != nil {
			return nil, err
		}
	}
	router := o.Router || rs.routes()
	if router {
		rep.note(place{file: rs.file}, "broadcasts to the host's networks, but to 255.255.255.255, count as forwarded")
	}
	if len(o.Devices) == 0 {
		if err := rs.trusted(devices, families, router); err != nil {
			return nil, err
		}
	}
	exempt := rs.exempted(devices)
	lists := map[family][]flat{}
	for _, f := range []family{ipv4, ipv6} {
		if families&f != 0 {
			lists[f] = bareAll(rs.reassembled(f, rs.flatten(f, devices, router, rep), rep))
		}
	}
	rs.rest(rep, router)
	rs.sharedTables(rep)
	list := fold(bothFamilies(lists[ipv4], lists[ipv6]))
	severalLimits(list, rep)
	list = needed(list, rep)
	for _, f := range list {
		if f.verdict == reject {
			rep.note(place{file: rs.file}, "reject answers with a TCP reset or port unreachable, whatever answer the rules choose")
			break
		}
	}
	return finish(rs, rep, o, devices, list, exempt), nil
}

// finish writes the policy.
func finish(rs *ruleset, rep *report, o Options, devices []string, list []flat, exempt untracked) *Result {
	var sets []*set
	if len(rs.tables) == 0 {
		sets = slices.DeleteFunc(slices.Clone(rs.sets), func(s *set) bool { return !s.isAddrs() || s.lists != nil })
	}
	r := &Result{Drops: rs.account(list, rep), Open: rs.open(list)}
	draft := &writer{report: rep, listFiles: o.ListFiles}
	body := draft.write(devices, list, sets, exempt)
	for _, s := range rs.sets {
		switch {
		case s.problem != "" && s.final == "":
			rep.lose(s.at, "set %s, %s", s.name, s.problem)
		case s.final == "" && s.lists == nil && s.isAddrs():
			rep.note(s.at, "no rule of the policy uses set %s: it is not imported", s.name)
		}
	}
	r.Lists, r.Rules, r.Sets, r.Lost, r.Notes = draft.lists, len(draft.rules), len(draft.sets), gather(rep.lost), gather(rep.notes)
	r.Policy = head(rs, r) + body
	return r
}

// inHead is how many remarks stand at the head of the policy. The command prints them all.
const inHead = 12

// head is the comment at the start of the policy: where it comes from, and how it is more open than that.
func head(rs *ruleset, r *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s.\n", oneLine(strings.Join(rs.files, ", ")))
	if r.Open != "" {
		fmt.Fprintf(&b, "# IT PASSES EVERYTHING: %s.\n", oneLine(r.Open))
	}
	if d := r.Drops; d.Lost > 0 {
		fmt.Fprintf(&b, "# IT IS MORE OPEN: %d of %d rules that drop have no equal.\n", d.Lost, d.Input)
	}
	if n := r.LostRules(); n > 0 {
		fmt.Fprintf(&b, "# Without an equal, wholly or in part (%d):\n", n)
		for _, l := range r.Lost[:min(inHead, len(r.Lost))] {
			fmt.Fprintf(&b, "#   %s\n", oneLine(l.short()))
		}
		if more := len(r.Lost) - inHead; more > 0 {
			fmt.Fprintf(&b, "#   and %d more, which `floodwall import` prints\n", more)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// short is the remark with the file's name alone, for the policy, which may be read on another machine.
func (r Remark) short() string {
	r.File = filepath.Base(r.File)
	return r.String()
}

// read reads all files; sets come first, as rules refer to them.
func read(ctx context.Context, sources []Source, claimed Format, rep *report) (*ruleset, family, error) {
	rs := &ruleset{}
	formats := make([]Format, len(sources))
	for i, src := range sources {
		var err error
		if formats[i], err = recognize(src, claimed); err != nil {
			return nil, 0, err
		}
		rs.files = append(rs.files, filepath.Base(src.Name))
	}
	if len(sources) > 0 {
		rs.file = sources[0].Name
	}
	var families family
	for _, sets := range []bool{true, false} {
		for i, src := range sources {
			if (formats[i] == Ipset) != sets {
				continue
			}
			f, err := rs.read(ctx, src, formats[i], rep)
			if err != nil {
				return nil, 0, err
			}
			families |= f
		}
	}
	if err := rs.twice(); err != nil {
		return nil, 0, err
	}
	rs.missing(families, rep)
	return rs, families, nil
}

// read reads one file, and returns the families that it has rules for.
func (rs *ruleset) read(ctx context.Context, src Source, f Format, rep *report) (family, error) {
	switch f {
	case Ipset:
		return 0, readIpset(rs, rep, src)
	case Iptables:
		return ipv4, readIptables(rs, rep, src, ipv4)
	case IP6tables:
		return ipv6, readIptables(rs, rep, src, ipv6)
	}
	return ipv4 | ipv6, readNftSource(ctx, rs, rep, src)
}

// twice is the error that two files hold the same table.
func (rs *ruleset) twice() error {
	first := map[string]place{}
	for _, t := range rs.tables {
		key := fmt.Sprint(t.families, t.kind)
		if at, ok := first[key]; ok && at.file != t.line.file {
			return &InputError{t.line.file, t.line.line, fmt.Sprintf("table %s is in %s, too", t.kind, at.file),
				"give one file for each of IPv4 and IPv6"}
		}
		first[key] = t.line
	}
	return nil
}

// missing notes that nothing is known of a family.
func (rs *ruleset) missing(families family, rep *report) {
	switch at := (place{file: rs.file}); families {
	case ipv4:
		rep.note(at, "no file has rules for IPv6, so that the policy passes it: give the output of ip6tables-save, too")
	case ipv6:
		rep.note(at, "no file has rules for IPv4, so that the policy passes it: give the output of iptables-save, too")
	}
}
