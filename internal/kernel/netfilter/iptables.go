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

// Iptables is iptables and ip6tables, of either kind, with ipset.
type Iptables struct {
	ipset    tool
	families []*family // IPv4, and IPv6 where the kernel has it
	lacks6   error     // why ip6tables does not work though the kernel has IPv6; nil: it does, or is not needed
}

// family is iptables for one version of IP.
type family struct {
	version       string // 4 or 6
	inet          string // how ipset calls it
	halves        [2]string
	restore, save tool
}

// ipv6Proof is a file that the kernel has when it has IPv6.
var ipv6Proof = func() string { return sockets.ProcFile("if_inet6") }

// FindIptables finds the programs. Without IPv6 in the kernel it does without ip6tables; so it does where that is missing or fails, and nothing
// of a generation is in IPv6 (LacksIPv6). Without the capabilities that the programs take it returns a *rights.Error.
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
		_, err = v6.read(context.Background()) // the next to read gets the same listing, without another run
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

// LegacyIptables reports whether the host has the older kind of iptables, which talks to the kernel by raw sockets
// (libiptc), and not the one that is made of nftables.
func LegacyIptables(ctx context.Context) bool {
	t, err := find("iptables-save", "iptables")
	if err != nil {
		return false
	}
	out, err := t.run(ctx, "", "-V")
	return err == nil && !strings.Contains(out, "(nf_tables)")
}

// iptablesTables are the tables that generations have chains in.
var iptablesTables = []string{"raw", "filter", "mangle"}

// iptablesSaved is what iptables-save prints of a table.
type iptablesSaved struct {
	table  string
	chains []iptablesChain
	rules  []iptablesRule
}

type iptablesChain struct {
	name  string
	built bool // by the kernel, not by a user
}

// iptablesRule is a rule without its chain's name.
type iptablesRule struct {
	chain, spec string
	count       Count
}

// read reads the tables of a family. The counts of rules may be older than the call.
func (f *family) read(ctx context.Context) ([]iptablesSaved, error) {
	return f.readBy(func(tables []string, args ...string) (string, error) {
		state := func() (rulesState, error) { return f.tableState(tables) }
		return f.save.unchanged(ctx, state, append([]string{"-c"}, args...)...)
	})
}

// readCounts is read with the counts of rules as they are now.
func (f *family) readCounts(ctx context.Context) ([]iptablesSaved, error) {
	return f.readBy(func(_ []string, args ...string) (string, error) {
		return f.save.run(ctx, "", append([]string{"-c"}, args...)...)
	})
}

// readBy reads the tables of a family by what save prints of them with arguments. One run of the tool prints all that there are.
func (f *family) readBy(save func(tables []string, args ...string) (string, error)) ([]iptablesSaved, error) {
	out, err := save(iptablesTables)
	if err != nil || strings.Contains(out, "is incompatible, use 'nft' tool") { // of ours, asking for it alone is an error
		return f.readEach(save)
	}
	list, err := readSaved(ours(out))
	if err != nil {
		return nil, fmt.Errorf("reading the tables of IPv%s: %w", f.version, err)
	}
	return list, nil
}

// readEach is readBy where the tool does not print all tables: the older kind takes root for it, whatever capabilities others have.
func (f *family) readEach(save func(tables []string, args ...string) (string, error)) (list []iptablesSaved, err error) {
	newer := false // kind, whose tables are nftables'
	for _, table := range iptablesTables {
		if table == "mangle" && !newer { // the older kind would make it, for all packets to pass through
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

// ours is the part of what iptables-save prints that is about iptablesTables. Others may hold forms that are not known here.
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

// readSaved reads the form of iptables-save and iptables-restore.
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

// words splits a rule; quotes hold words together, and a backslash takes the next character as it is.
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

// after is the word behind one of these, or "".
func after(spec string, options ...string) string {
	list := words(spec)
	for i, w := range list {
		if i+1 < len(list) && slices.Contains(options, w) {
			return list[i+1]
		}
	}
	return ""
}

// target is where the rule jumps.
func (r iptablesRule) target() string { return after(r.spec, "-j", "-g", "--jump", "--goto") }

// ownChain reports whether a chain belongs to a generation.
func ownChain(name, chain string) bool { return chain == name || strings.HasPrefix(chain, name+"-") }

// setsPrefix is what the names of a generation's sets begin with.
func setsPrefix(name string) string { return strings.ToLower(name) + "-" }

// The guards' sets, without the version of IP at the end; ipset allows 31 bytes for a name.
const (
	iptablesTrial      = "trial"
	iptablesSuperseded = "aside"
	iptablesReturn     = "back" // changes places with the one before, once its entries have their time
)

func guardSet(name, guard string, f *family) string { return setsPrefix(name) + guard + f.version }

// setNames lists all ipsets.
func (x *Iptables) setNames(ctx context.Context) ([]string, error) {
	if names, err := ipsetNames(); err == nil {
		return names, nil
	}
	out, err := x.ipset.run(ctx, "", "list", "-n") // loads what the kernel lacks, or says in its own words why not
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

// restoreSets gives lines to ipset. It is no error when an entry to add is there, or one to delete is not.
func (x *Iptables) restoreSets(ctx context.Context, lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := x.ipset.run(ctx, strings.Join(lines, "\n")+"\n", "-exist", "restore")
	return err
}

// lockWait is how many seconds to wait for other programs that hold the lock of iptables.
const lockWait = "30"

// apply gives lines to iptables-restore: for each table all of them are done, or nothing. A line may begin with counts.
func (f *family) apply(ctx context.Context, script string) error {
	if script == "" {
		return nil
	}
	_, err := f.restore.run(ctx, script, "--noflush", "--counters", "-w", lockWait)
	return err
}

// Generations lists the generations whose names are prefix and a number, and of which there is a chain or a set.
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

// Counters sums what the lines of a generation have counted, by their comments, over both families.
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

// Trial tells what a generation does, and how long the trial lasts that it is part of, in whole seconds.
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

// hooked tells what a generation does that has no trial of its own, by its hooks.
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

// left is how long the entries of a guard's set stay: 0, and there, for ever.
func (x *Iptables) left(ctx context.Context, set string) (least time.Duration, there bool, err error) {
	entries, err := x.Elements(ctx, set)
	for i, e := range entries {
		if i == 0 || e.Timeout < least {
			least = e.Timeout
		}
	}
	return least, len(entries) > 0, err
}
