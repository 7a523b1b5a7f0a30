// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// words returns the words for addresses in a rule. If there are many addresses, it makes a set of them.
func (w *writer) words(a *saved.AddrSet) (list []string) {
	for _, s := range a.Sets {
		w.declare(s)
		list = append(list, "$"+s.Final)
	}
	if a.Local {
		list = append(list, "local")
	}
	ranges := a.Ranges
	if a.Local && allHereBound(ranges) {
		if w.manyHere == nil {
			w.manyHere = &saved.Set{Name: "multicast", Entries: entriesOf(saved.HereBound), Ranges: saved.HereBound}
		}
		w.declare(w.manyHere)
		return append(list, "$"+w.manyHere.Final)
	}
	entries := w.current.entriesOf(ranges)
	if len(ranges) > inRule || len(entries) > inRule {
		s := w.listed(ranges, entries)
		w.made = s.Final
		return append(list, "$"+s.Final)
	}
	for _, r := range ranges {
		list = append(list, addrWord(r))
	}
	return list
}

// allHereBound reports whether ranges are exactly saved.HereBound, or the part of it of one family.
func allHereBound(ranges []netipx.IPRange) bool {
	all := saved.HereBound
	six := slices.IndexFunc(all, func(r netipx.IPRange) bool { return r.From().Is6() })
	return slices.Equal(ranges, all) || slices.Equal(ranges, all[:six]) || slices.Equal(ranges, all[six:])
}

// listed returns a set of addresses that is not in the input: a new set, or one that was made for another rule.
func (w *writer) listed(ranges []netipx.IPRange, entries []saved.Entry) *saved.Set {
	for _, s := range w.own {
		if slices.Equal(s.Ranges, ranges) && slices.EqualFunc(s.Entries, entries, func(a, b saved.Entry) bool { return a.Addr == b.Addr && a.Comment == b.Comment }) {
			return s
		}
	}
	s := &saved.Set{Name: w.listName(), Ranges: ranges, Entries: entries}
	w.declare(s)
	w.own = append(w.own, s)
	return s
}

// entriesOf returns the entries from which f was made, with their comments, if they have exactly these ranges. Otherwise it returns nil, because a
// rule has entries for only one of its addresses: source or destination.
func (f *flat) entriesOf(ranges []netipx.IPRange) []saved.Entry {
	var all []netipx.IPRange
	for _, e := range f.entries {
		all = append(all, e.Addr)
	}
	if !slices.Equal(saved.Join(all), ranges) {
		return nil
	}
	return f.entries
}

// listName returns a name for the set of a rule that lists many addresses.
func (w *writer) listName() string {
	f := w.current
	switch {
	case f.name != "":
		return f.name
	case f.chain != nil && f.chain.Hook == saved.HookNone && safeName(f.chain.Name) != "":
		return safeName(f.chain.Name)
	}
	return [...]string{pass: "allowed", drop: "blocked", reject: "rejected"}[f.verdict]
}

// declare adds a set to the policy, and sets the name of the set in the policy.
func (w *writer) declare(s *saved.Set) {
	if s.Final != "" {
		return
	}
	name := safeName(s.Name)
	if name == "" {
		name = "set"
	}
	s.Final = w.setNames.unique(name)
	w.sets = append(w.sets, s)
	w.limitDynamic(s)
}

// limitDynamic makes a dynamic set fixed if there are more dynamic sets than a policy can have.
func (w *writer) limitDynamic(s *saved.Set) {
	n := 0
	for _, t := range w.sets {
		if t.Dynamic {
			n++
		}
	}
	if s.Dynamic && n > maxDynamic {
		s.Dynamic = false
		w.report.Lose(s.At, "set %s is fixed in the policy: no more than %d sets can be filled at run time", s.Name, maxDynamic)
	}
}

// addrWord returns an address, a prefix or a range as a YAML word.
func addrWord(r netipx.IPRange) string {
	word := rangeText(r)
	if strings.HasPrefix(word, ":") || strings.HasSuffix(word, ":") {
		return `"` + word + `"`
	}
	return word
}

// rangeText returns the shortest form of r.
func rangeText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.From().String() + "-" + r.To().String()
}

func (w *writer) writeSets(b *strings.Builder) {
	if len(w.sets) == 0 {
		return
	}
	b.WriteString("\nsets:\n")
	for _, s := range w.sets {
		w.writeSet(b, s)
	}
}

// writeSet writes a set: as a dynamic set, as a list in the policy, or as a file next to it.
func (w *writer) writeSet(b *strings.Builder, s *saved.Set) {
	list := s.Entries
	if !slices.ContainsFunc(list, func(e saved.Entry) bool { return e.Comment != "" }) {
		list = entriesOf(s.Ranges)
	}
	switch {
	case s.Countries != nil:
		fmt.Fprintf(b, "  %s: {country: [%s], db: %s}\n", s.Final, strings.Join(s.Countries, ", "), strconv.Quote(s.DB))
	case s.Dynamic:
		w.writeDynamic(b, s, list)
	case w.listFiles && len(list) > inPolicy:
		name := s.Final + ".txt"
		w.lists = append(w.lists, List{name, listFile(list)})
		fmt.Fprintf(b, "  %s: {file: %s}  # %d entries\n", s.Final, name, len(list))
	case slices.ContainsFunc(list, func(e saved.Entry) bool { return e.Comment != "" }):
		fmt.Fprintf(b, "  %s:\n", s.Final)
		for _, e := range list {
			fmt.Fprintf(b, "    - %s", addrWord(e.Addr))
			if e.Comment != "" {
				fmt.Fprintf(b, "  # %s", oneLine(e.Comment))
			}
			b.WriteByte('\n')
		}
	default:
		writeWrapped(b, s.Final, list)
	}
}

// writeWrapped writes a set as a list in brackets, over several lines if it is long.
func writeWrapped(b *strings.Builder, name string, list []saved.Entry) {
	line := "  " + name + ": ["
	for i, e := range list {
		word := addrWord(e.Addr)
		if i < len(list)-1 {
			word += ","
		}
		if len(line)+1+len(word) > columns {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = "    "
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "]\n")
}

// listFile returns entries in the form of a list file: one entry per line, with its comment after #.
func listFile(list []saved.Entry) []byte {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(rangeText(e.Addr))
		if e.Comment != "" {
			b.WriteString(" # " + oneLine(e.Comment))
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// defaultMax is the capacity of a dynamic set for which the input has none. It is the default of ipset, and the value in
// nft's examples.
const defaultMax = 65536

// writeDynamic writes a set that is filled at run time. Its entries become a list for `floodwall block`.
func (w *writer) writeDynamic(b *strings.Builder, s *saved.Set, list []saved.Entry) {
	size := s.Max
	if size == 0 {
		size = defaultMax
	}
	fmt.Fprintf(b, "  %s: {dynamic: true, max: %d", s.Final, max(size, len(list)))
	if s.Timeout > 0 {
		fmt.Fprintf(b, ", timeout: %s", timeText(s.Timeout))
	}
	b.WriteString("}\n")
	switch {
	case len(list) == 0:
	case w.listFiles:
		name := s.Final + ".txt"
		w.lists = append(w.lists, List{name, listFile(list)})
		w.report.Note(s.At, "set %s: what it holds (%d) is in %s: after apply, `floodwall block --set %s - < %s`", s.Name, len(list), name, s.Final, name)
	default:
		w.report.Lose(s.At, "set %s: what it holds (%d) is not in the policy, as it is filled at run time; --output FILE makes a list of it", s.Name, len(list))
	}
}

// timeText returns a time in the policy's notation, without parts that are zero.
func timeText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
