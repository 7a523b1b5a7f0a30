// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// Options are the options of an import.
type Options struct {
	Format    Format   // the format of the files; the formats of iptables and ipset may be given together
	Devices   []string // the devices on which packets arrive from outside; empty means those that the rules name
	Router    bool     // the policy also covers forwarded packets, even if chain FORWARD has no rules
	Geo       string   // a database (mmdb) of countries, for rules that test countries
	ListFiles bool     // write large sets as list files

	spoil func(policy string) string // used by tests: changes the policy before it is compared with the files
}

// Result is a policy with remarks about the conversion.
type Result struct {
	Policy  string
	Lists   []List         // list files that must be written next to the policy
	Rules   int            // number of rules in the policy
	Sets    int            // number of sets in the policy
	Lost    []saved.Remark // rules, or parts of rules, that have no equivalent in the policy
	Notes   []saved.Remark // remarks that change no verdict, but that the user may want to know
	Drops   Drops
	Open    string // why the policy passes everything although the files drop packets; or ""
	Differs string // how many test packets get another verdict from the policy without a reason in Lost; or ""
	Unfit   string // why `check` refuses the policy, and which target accepts the policy; or ""

	bytes bool // whether rules test bytes of packets
}

// Drops counts the rules of the input that drop or reject, and base chains whose policy is to drop.
type Drops struct {
	Input  int `json:"input"`  // all drops: the sum of the other fields
	Policy int `json:"policy"` // drops that rules of the policy cover, completely or in part
	Lost   int `json:"lost"`   // drops that only Lost names
	Aside  int `json:"aside"`  // rules that drop other packets, or that no packet reaches; Notes names each
}

// LostRules returns the number of input rules that have no equivalent, or only a partial one.
func (r *Result) LostRules() int { return saved.Total(r.Lost) }

// importOnce imports files. It uses the tests of bytes that less allows.
func importOnce(ctx context.Context, sources []saved.Source, o Options, less asked) (*Result, error) {
	rep := &saved.Report{}
	rs, families, err := read(ctx, sources, o, rep)
	if err != nil {
		return nil, err
	}
	bytes := askLess(rs, less)
	devices := o.Devices
	if len(devices) == 0 {
		if devices, err = chooseDevices(rs, rep); err != nil {
			return nil, err
		}
	}
	router := o.Router || routes(rs)
	if router {
		rep.Note(saved.Place{File: rs.File}, "broadcasts to the host's networks, but to 255.255.255.255, count as forwarded")
	}
	if len(o.Devices) == 0 {
		if err := trusted(rs, devices, families, router); err != nil {
			return nil, err
		}
	}
	hoisted(rs)
	ownNotrack(rs)
	exempt := exempted(rs, devices, router, rep)
	stateless(rs, devices, rep)
	lists := map[saved.Family][]flat{}
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		if families&f != 0 {
			lists[f] = bareAll(reassembled(rs, f, flatten(rs, f, devices, router, rep), rep))
		}
	}
	rest(rs, rep, router)
	unforwarded(rs, families, rep, router)
	sharedTables(rs, rep)
	list := fold(bothFamilies(lists[saved.IPv4], lists[saved.IPv6]))
	severalLimits(list, rep)
	list = needed(list, rep)
	for _, f := range list {
		if f.verdict == reject {
			rep.Note(saved.Place{File: rs.File}, "reject answers with a TCP reset or port unreachable, whatever answer the rules choose")
			break
		}
	}
	r := finish(rs, rep, o, devices, router, list, exempt, families)
	r.bytes = bytes
	return r, nil
}

// finish writes the policy.
func finish(rs *saved.Ruleset, rep *saved.Report, o Options, devices []string, router bool, list []flat, exempt untracked, families saved.Family) *Result {
	var sets []*saved.Set
	if len(rs.Tables) == 0 {
		sets = slices.DeleteFunc(slices.Clone(rs.Sets), func(s *saved.Set) bool { return !s.IsAddrs() || s.Lists != nil || s.Problem != "" })
	}
	r := &Result{Drops: account(rs, list, rep), Open: open(rs, list)}
	draft := &writer{report: rep, listFiles: o.ListFiles, standard: standardOf(list)}
	list, draft.services = separate(list, families, rep)
	body := draft.fit(draft.write(devices, list, sets, exempt), devices, saved.Place{File: rs.File})
	r.Unfit = draft.unfit
	if o.spoil != nil {
		body = o.spoil(body)
	}
	r.Differs = draft.compare(rs, body, devices, router, families, list)
	for _, s := range rs.Sets {
		switch {
		case s.Problem != "" && s.Final == "":
			rep.Lose(s.At, "set %s, %s", s.Name, s.Problem)
		case s.Final == "" && s.Lists == nil && s.IsAddrs():
			rep.Note(s.At, "no rule of the policy uses set %s: it is not imported", s.Name)
		}
	}
	r.Lists, r.Rules, r.Sets, r.Lost, r.Notes = draft.lists, len(draft.rules), len(draft.sets), saved.Gather(rep.Lost), saved.Gather(rep.Notes)
	r.Policy = head(rs, r) + body
	return r
}

// inHead is the largest number of remarks at the head of the policy. The command prints all.
const inHead = 12

// head returns the comment at the beginning of the policy: the names of the files, and the packets that the policy passes and the files do not.
func head(rs *saved.Ruleset, r *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s.\n", oneLine(strings.Join(rs.Files, ", ")))
	if r.Open != "" {
		fmt.Fprintf(&b, "# IT PASSES EVERYTHING: %s.\n", oneLine(r.Open))
	}
	if r.Unfit != "" {
		fmt.Fprintf(&b, "# CHECK REFUSES IT: %s.\n", oneLine(r.Unfit))
	}
	if r.Differs != "" {
		fmt.Fprintf(&b, "# IT DIFFERS FROM THE FILES: %s.\n", oneLine(r.Differs))
	}
	if d := r.Drops; d.Lost > 0 {
		fmt.Fprintf(&b, "# IT IS MORE OPEN: %d of %d rules that drop have no equal.\n", d.Lost, d.Input)
	}
	if n := r.LostRules(); n > 0 {
		fmt.Fprintf(&b, "# Without an equal, wholly or in part (%d):\n", n)
		for _, l := range r.Lost[:min(inHead, len(r.Lost))] {
			fmt.Fprintf(&b, "#   %s\n", oneLine(short(l)))
		}
		if more := len(r.Lost) - inHead; more > 0 {
			fmt.Fprintf(&b, "#   and %d more, which `floodwall import` prints\n", more)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// short returns the remark with only the file's base name, for the policy, which may be read on another machine.
func short(r saved.Remark) string {
	r.File = filepath.Base(r.File)
	return r.String()
}

// read reads all files. Sets come first, because rules refer to them.
func read(ctx context.Context, sources []saved.Source, o Options, rep *saved.Report) (*saved.Ruleset, saved.Family, error) {
	rs := &saved.Ruleset{Geo: o.Geo}
	formats := make([]Format, len(sources))
	sources = slices.Clone(sources)
	for i, src := range sources {
		var err error
		src = bareDump(src, rep)
		sources[i] = src
		if formats[i], err = recognize(src, o.Format); err != nil {
			return nil, 0, err
		}
		rs.Files = append(rs.Files, filepath.Base(src.Name))
	}
	if len(sources) > 0 {
		rs.File = sources[0].Name
	}
	var families saved.Family
	for _, sets := range []bool{true, false} {
		for i, src := range sources {
			if (formats[i] == Ipset) != sets {
				continue
			}
			f, err := readFile(ctx, rs, src, formats[i], rep)
			if err != nil {
				return nil, 0, err
			}
			families |= f
		}
	}
	if err := twice(rs); err != nil {
		return nil, 0, err
	}
	missing(rs, families, rep)
	return rs, families, nil
}

// readFile reads one file, and returns the families that it has rules for.
func readFile(ctx context.Context, rs *saved.Ruleset, src saved.Source, f Format, rep *saved.Report) (saved.Family, error) {
	switch f {
	case Ipset:
		return 0, saved.ReadIpset(rs, rep, src)
	case Iptables:
		return saved.IPv4, saved.ReadIptables(rs, rep, src, saved.IPv4)
	case IP6tables:
		return saved.IPv6, saved.ReadIptables(rs, rep, src, saved.IPv6)
	}
	return saved.IPv4 | saved.IPv6, saved.ReadNft(ctx, rs, rep, src)
}

// twice returns an error if two files have the same table.
func twice(rs *saved.Ruleset) error {
	first := map[string]saved.Place{}
	for _, t := range rs.Tables {
		key := fmt.Sprint(t.Families, t.Kind)
		if at, ok := first[key]; ok && at.File != t.Line.File {
			return &saved.InputError{File: t.Line.File, Line: t.Line.Line, Msg: fmt.Sprintf("table %s is in %s, too", t.Kind, at.File),
				Remedy: "give one file for each of IPv4 and IPv6"}
		}
		first[key] = t.Line
	}
	return nil
}

// missing adds a note if no file covers a family.
func missing(rs *saved.Ruleset, families saved.Family, rep *saved.Report) {
	switch at := (saved.Place{File: rs.File}); families {
	case saved.IPv4:
		rep.Note(at, "no file has rules for IPv6, so that the policy passes it: give the output of ip6tables-save, too")
	case saved.IPv6:
		rep.Note(at, "no file has rules for IPv4, so that the policy passes it: give the output of iptables-save, too")
	}
}
