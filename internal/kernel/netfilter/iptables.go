// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Iptables has the programs iptables and ip6tables, of either kind, and ipset.
type Iptables struct {
	ipset    tool
	families []*family // IPv4, and IPv6 if the kernel has it
	lacks6   error     // why ip6tables does not work although the kernel has IPv6; nil if it works or is not needed
}

// family is iptables for one version of IP.
type family struct {
	version       string // 4 or 6
	inet          string // the name of the family in ipset
	halves        [2]string
	restore, save tool
}

// ipv6Proof returns the path of a file that exists if the kernel has IPv6.
var ipv6Proof = func() string { return sockets.ProcFile("if_inet6") }

// FindIptables finds the programs. It needs no ip6tables if the kernel has no IPv6. If ip6tables is missing or fails, it returns an Iptables for IPv4
// only (LacksIPv6), or an error if a generation has IPv6 chains. It returns an error if the process lacks the capabilities that the tools need.
func FindIptables() (*Iptables, error) {
	if err := features.CheckRights("iptables and ipset", features.NetAdmin, features.NetRaw); err != nil {
		return nil, err
	}
	x, v4 := &Iptables{}, &family{version: "4", inet: "inet", halves: [2]string{"0.0.0.0/1", "128.0.0.0/1"}}
	var err error
	x.ipset, err = find("ipset", "ipset")
	if err := errors.Join(err, v4.find("iptables")); err != nil {
		return nil, err
	}
	x.families = []*family{v4}
	if _, err := os.Stat(ipv6Proof()); err != nil {
		return x, nil
	}
	v6 := &family{version: "6", inet: "inet6", halves: [2]string{"::/1", "8000::/1"}}
	err = v6.find("ip6tables")
	if err == nil {
		_, err = v6.read(context.Background()) // the output is cached, so the next reader needs no other run of the tool
	}
	if err == nil {
		x.families = append(x.families, v6)
		return x, nil
	}
	if held, failed := holdsIPv6(); held || failed != nil {
		return nil, errors.Join(err, failed)
	}
	x.lacks6 = err
	return x, nil
}

// find finds the programs of a family.
func (f *family) find(name string) (err error) {
	var errs [2]error
	f.restore, errs[0] = find(name+"-restore", "iptables")
	f.save, errs[1] = find(name+"-save", "iptables")
	return errors.Join(errs[:]...)
}

// LegacyIptables reports whether the host's iptables is iptables-legacy and not iptables-nft. iptables-legacy communicates with the kernel through
// raw sockets (libiptc).
func LegacyIptables(ctx context.Context) bool {
	t, err := find("iptables-save", "iptables")
	if err != nil {
		return false
	}
	out, err := t.run(ctx, "", "-V")
	return err == nil && !strings.Contains(out, "(nf_tables)")
}

// iptablesTables are the tables in which generations may have chains.
var iptablesTables = []string{"raw", "filter", "mangle"}

// iptablesSaved is the output of iptables-save for a table.
type iptablesSaved struct {
	table  string
	chains []iptablesChain
	rules  []iptablesRule
}

type iptablesChain struct {
	name  string
	built bool // a built-in chain, not a user's chain
}

// iptablesRule is a rule without its chain's name.
type iptablesRule struct {
	chain, spec string
	count       Count
}

// read reads the tables of a family. The counts of the rules may be from an earlier call.
func (f *family) read(ctx context.Context) ([]iptablesSaved, error) {
	return f.readBy(func(tables []string, args ...string) (string, error) {
		state := func() (rulesState, error) { return f.tableState(tables) }
		return f.save.unchanged(ctx, state, append([]string{"-c"}, args...)...)
	})
}

// readCounts is read, but with the present counts of the rules.
func (f *family) readCounts(ctx context.Context) ([]iptablesSaved, error) {
	return f.readBy(func(_ []string, args ...string) (string, error) {
		return f.save.run(ctx, "", append([]string{"-c"}, args...)...)
	})
}

// readBy reads the tables of a family from the output of save. One run of the tool prints all tables.
func (f *family) readBy(save func(tables []string, args ...string) (string, error)) ([]iptablesSaved, error) {
	out, err := save(iptablesTables)
	if err != nil || strings.Contains(out, "is incompatible, use 'nft' tool") { // if one of our tables is incompatible, reading each table separately finds the error
		return f.readEach(save)
	}
	list, err := readSaved(ours(out))
	if err != nil {
		return nil, fmt.Errorf("reading the tables of IPv%s: %w", f.version, err)
	}
	return list, nil
}

// readEach is readBy for a tool that cannot print all tables at once. iptables-legacy requires root for that; capabilities are not enough.
func (f *family) readEach(save func(tables []string, args ...string) (string, error)) (list []iptablesSaved, err error) {
	newer := false // whether the tool is iptables-nft
	for _, table := range iptablesTables {
		if table == "mangle" && !newer { // iptables-legacy would create a missing table, through which all packets would then pass
			there, err := oldTable(f.version, table)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
		}
		out, err := save([]string{table}, "-t", table)
		if err != nil {
			return nil, fmt.Errorf("reading table %s of IPv%s: %w", table, f.version, err)
		}
		newer = newer || strings.Contains(out, "(nf_tables)")
		s, err := readSaved(out)
		if err != nil {
			return nil, fmt.Errorf("reading table %s of IPv%s: %w", table, f.version, err)
		}
		list = append(list, s...)
	}
	return list, nil
}

// ours returns the part of the output of iptables-save about iptablesTables. Other tables may have forms that readSaved does not know.
func ours(text string) string {
	var part strings.Builder
	keep := false
	for line := range strings.Lines(text) {
		if table, ok := strings.CutPrefix(line, "*"); ok {
			keep = slices.Contains(iptablesTables, strings.TrimSpace(table))
		}
		if keep {
			part.WriteString(line)
		}
	}
	return part.String()
}

// readSaved parses the format of iptables-save and iptables-restore.
func readSaved(text string) (list []iptablesSaved, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line == "COMMIT" {
			continue
		}
		if table, ok := strings.CutPrefix(line, "*"); ok {
			list = append(list, iptablesSaved{table: table})
			continue
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%q stands in no table", line)
		}
		if err := list[len(list)-1].readLine(line); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *iptablesSaved) readLine(line string) error {
	if chain, ok := strings.CutPrefix(line, ":"); ok {
		name, rest, _ := strings.Cut(chain, " ")
		s.chains = append(s.chains, iptablesChain{name: name, built: !strings.HasPrefix(rest, "-")})
		return nil
	}
	var r iptablesRule
	if line[0] == '[' {
		if _, err := fmt.Sscanf(line, "[%d:%d]", &r.count.Packets, &r.count.Bytes); err != nil {
			return fmt.Errorf("counters of %q: %w", line, err)
		}
		_, line, _ = strings.Cut(line, "] ")
	}
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return fmt.Errorf("%q is neither a chain nor a rule of one", line)
	}
	r.chain, r.spec, _ = strings.Cut(rest, " ")
	s.rules = append(s.rules, r)
	return nil
}

// words splits a rule into words. A quoted text is one word, and a backslash escapes the next character.
func words(spec string) (list []string) {
	var word strings.Builder
	quoted, any := false, false
	for i := 0; i < len(spec); i++ {
		switch c := spec[i]; {
		case c == '"':
			quoted, any = !quoted, true
		case c == '\\' && i+1 < len(spec):
			i++
			word.WriteByte(spec[i])
		case c == ' ' && !quoted:
			if any || word.Len() > 0 {
				list = append(list, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteByte(c)
		}
	}
	if any || word.Len() > 0 {
		list = append(list, word.String())
	}
	return list
}

// after returns the word that follows one of the given options. It returns "" if the rule has none of them.
func after(spec string, options ...string) string {
	list := words(spec)
	for i, w := range list {
		if i+1 < len(list) && slices.Contains(options, w) {
			return list[i+1]
		}
	}
	return ""
}

// target returns the chain to which the rule jumps.
func (r iptablesRule) target() string { return after(r.spec, "-j", "-g", "--jump", "--goto") }

// ownChain reports whether a chain belongs to a generation.
func ownChain(name, chain string) bool { return chain == name || strings.HasPrefix(chain, name+"-") }

// setsPrefix returns the prefix of the names of a generation's sets.
func setsPrefix(name string) string { return strings.ToLower(name) + "-" }

// The names of the guards' sets, without prefix and IP version. ipset allows 31 bytes for a name.
const (
	iptablesTrial      = "trial"
	iptablesSuperseded = "aside"
	iptablesReturn     = "back" // swapped with the aside set after its entries have got their timeouts
)

func guardSet(name, guard string, f *family) string { return setsPrefix(name) + guard + f.version }

// setNames lists all ipsets.
func (x *Iptables) setNames(ctx context.Context) ([]string, error) {
	if names, err := ipsetNames(); err == nil {
		return names, nil
	}
	out, err := x.ipset.run(ctx, "", "list", "-n") // ipset loads missing modules, or reports the cause
	if err != nil {
		return nil, fmt.Errorf("listing ipsets: %w", err)
	}
	return strings.Fields(out), nil
}

// ownSets lists the sets of a generation.
func (x *Iptables) ownSets(ctx context.Context, name string) ([]string, error) {
	names, err := x.setNames(ctx)
	return slices.DeleteFunc(names, func(s string) bool { return !strings.HasPrefix(s, setsPrefix(name)) }), err
}

// restoreSets passes lines to ipset restore. An entry to add that exists, or an entry to delete that does not exist, is not an error.
func (x *Iptables) restoreSets(ctx context.Context, lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := x.ipset.run(ctx, strings.Join(lines, "\n")+"\n", "-exist", "restore")
	return err
}

// lockWait is the time in seconds that iptables waits for other programs that hold its lock.
const lockWait = "30"

// apply passes a script to iptables-restore. For each table, either all lines take effect or none. A line may start with counts.
func (f *family) apply(ctx context.Context, script string) error {
	if script == "" {
		return nil
	}
	_, err := f.restore.run(ctx, script, "--noflush", "--counters", "-w", lockWait)
	return err
}

// Generations lists the generations with at least one chain or set whose names consist of prefix and a number.
func (x *Iptables) Generations(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	add := func(name, prefix string) {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			number, _, _ := strings.Cut(rest, "-")
			names = append(names, number)
		}
	}
	sets, err := x.setNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		add(set, strings.ToLower(prefix))
	}
	for _, f := range x.families {
		tables, err := f.read(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			for _, c := range t.chains {
				add(c.name, prefix)
			}
		}
	}
	for i := range names {
		names[i] = prefix + names[i]
	}
	return numbered(names, prefix, nil), nil
}

// Counters returns the counts of the rules of a generation, by the comments of the rules. The counts are summed over both families.
func (x *Iptables) Counters(ctx context.Context, name string) (map[string]Count, error) {
	counts := map[string]Count{}
	for _, f := range x.families {
		tables, err := f.readCounts(ctx)
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", name, err)
		}
		for _, t := range tables {
			for _, r := range t.rules {
				comment := after(r.spec, "--comment")
				if comment == "" || !ownChain(name, r.chain) {
					continue
				}
				c := counts[comment]
				counts[comment] = Count{c.Packets + r.count.Packets, c.Bytes + r.count.Bytes}
			}
		}
	}
	return counts, nil
}

// Trial returns the state of a generation. If the generation takes part in a trial, left is the time left, in whole seconds.
func (x *Iptables) Trial(ctx context.Context, name string) (left time.Duration, state State, err error) {
	sets, err := x.ownSets(ctx, name)
	if err != nil {
		return 0, Absent, err
	}
	first := x.families[0]
	if trial := guardSet(name, iptablesTrial, first); slices.Contains(sets, trial) {
		left, there, err := x.left(ctx, trial)
		switch {
		case err != nil || !there:
			return 0, Inert, err
		case left == 0:
			return 0, Settled, nil
		}
		return left, OnTrial, nil
	}
	return x.hooked(ctx, name, len(sets) > 0)
}

// hooked returns the state of a generation without its own trial. It derives the state from the generation's hooks.
func (x *Iptables) hooked(ctx context.Context, name string, known bool) (time.Duration, State, error) {
	hooks := false
	for _, f := range x.families {
		tables, err := f.read(ctx)
		if err != nil {
			return 0, Absent, err
		}
		for _, t := range tables {
			known = known || slices.ContainsFunc(t.chains, func(c iptablesChain) bool { return ownChain(name, c.name) })
			for _, h := range t.hooks(name) {
				hooks = true
				if set := after(h.spec, "--match-set"); guardForm().MatchString(h.spec) {
					return x.aside(ctx, set)
				}
			}
		}
	}
	switch {
	case hooks:
		return 0, Settled, nil
	case known:
		return 0, Inert, nil
	}
	return 0, Absent, nil
}

func (x *Iptables) aside(ctx context.Context, set string) (time.Duration, State, error) {
	left, there, err := x.left(ctx, set)
	if err != nil || !there {
		return 0, Returned, err
	}
	return left, Aside, nil
}

// left returns the time until the entries of a guard's set expire. `there` is false if the set has no entries. If `there` is true, 0 means no timeout.
func (x *Iptables) left(ctx context.Context, set string) (least time.Duration, there bool, err error) {
	entries, err := x.Elements(ctx, set)
	for i, e := range entries {
		if i == 0 || e.Timeout < least {
			least = e.Timeout
		}
	}
	return least, len(entries) > 0, err
}
