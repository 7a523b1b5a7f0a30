package netfilter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Nft is the program nft.
type Nft struct {
	tool
	refreshes *bool // whether adding an element again sets its timeout anew; nil: as canRefresh finds out
}

// nftPackage is where nft comes from.
const nftPackage = "nftables"

// oldestNft is the first version that has ingress chains in tables of family inet.
var oldestNft = [3]int{0, 9, 7}

// unfit says that nft is too old, or was built without what is needed.
func unfit(have, need string) error {
	return wording.Hinted(fmt.Sprintf("the program nft is version %s, and %s is needed", have, need), "install a newer nft, or use another target")
}

var versionForm = wording.Regexp(`v(\d+)\.(\d+)(?:\.(\d+))?`)

// FindNft finds nft and checks that it can do what the package needs.
func FindNft(ctx context.Context) (*Nft, error) {
	t, err := find("nft", nftPackage)
	if err != nil {
		return nil, err
	}
	file, known := identify(t.path)
	if _, done := suited.Load(file); known && done {
		return &Nft{tool: t}, nil
	}
	out, err := t.run(ctx, "", "-V")
	if err != nil {
		return nil, fmt.Errorf("asking nft for its version: %w", err)
	}
	m := versionForm().FindStringSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("asking nft for its version: no version in %q", nth(out, 1))
	}
	var have [3]int
	for i := range have {
		have[i], _ = strconv.Atoi(m[i+1])
	}
	if slices.Compare(have[:], oldestNft[:]) < 0 {
		return nil, unfit(m[0][1:], "0.9.7 or later")
	}
	if jsonOff().MatchString(out) {
		return nil, unfit(m[0][1:]+" without JSON", "one built with JSON")
	}
	if known {
		suited.Store(file, true)
	}
	return &Nft{tool: t}, nil
}

// suited are the files of nft that have said that they can do what the package needs: each is asked once.
var suited sync.Map // of fileIdentity

// fileIdentity tells a file from all others, also from the one of the same name that an upgrade puts in its place.
type fileIdentity struct {
	path             string
	device, inode    uint64
	size             int64
	modified, status unix.Timespec
}

// identify reports whether the file is there, and which it is.
func identify(path string) (fileIdentity, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileIdentity{}, false
	}
	return fileIdentity{path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, true
}

var jsonOff = wording.Regexp(`json:\s+no`)

// script runs a script as one transaction: all of it is done, or nothing.
func (n *Nft) script(ctx context.Context, lines ...string) error {
	_, err := n.run(ctx, strings.Join(lines, "\n")+"\n", "-f", "-")
	return err
}

// nftObject is one of a listing in JSON (man libnftables-json); only one pointer is set.
type nftObject struct {
	Table   *struct{ Name string }
	Chain   *struct{ Family, Name, Table, Hook string }
	Rule    *nftRule
	Counter *struct {
		Name, Table    string
		Packets, Bytes uint64
	}
	Set *struct{ Elem []json.RawMessage }
}

type nftRule struct {
	Family, Table, Chain, Comment string
	Handle                        int
}

// ruleset lists all tables of the families inet and netdev, without elements of sets. Of all the listings of nft 1.0.6
// that have rules or counters it is the only one that does not read all elements from the kernel first, 1.5 s per 200,000
// of them.
func (n *Nft) ruleset(ctx context.Context) (all []nftObject, err error) {
	return n.list(ctx, "-t", "-a", listFamilies)
}

// list reads what commands list in JSON.
func (n *Nft) list(ctx context.Context, args ...string) (all []nftObject, err error) {
	out, err := n.run(ctx, "", append([]string{"-j"}, args...)...)
	if err != nil {
		return nil, err
	}
	return readObjects[nftObject](out)
}

// readObjects reads what nft lists in JSON, a document for each command.
func readObjects[T any](out string) (all []T, err error) {
	for in := json.NewDecoder(strings.NewReader(out)); ; {
		var listing struct{ Nftables []T }
		switch err := in.Decode(&listing); {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading the JSON of nft: %w", err)
		}
		all = append(all, listing.Nftables...)
	}
}

// Tables lists the tables of family inet whose names are prefix and a number.
func (n *Nft) Tables(ctx context.Context, prefix string) ([]string, error) {
	names, err := n.tables(ctx, "inet")
	return numbered(names, prefix, nil), err
}

// tables lists the names of all tables of a family.
func (n *Nft) tables(ctx context.Context, family string) (names []string, err error) {
	out, err := n.unchanged(ctx, nftState, "-j", "list", "tables", family)
	if err != nil {
		return nil, fmt.Errorf("listing tables: %w", err)
	}
	objects, err := readObjects[nftObject](out)
	for _, o := range objects {
		if o.Table != nil {
			names = append(names, o.Table.Name)
		}
	}
	return names, err
}

// Counters reads the named counters of a table.
func (n *Nft) Counters(ctx context.Context, table string) (map[string]Count, error) {
	objects, err := n.ruleset(ctx)
	if err != nil {
		return nil, fmt.Errorf("counters of table %s: %w", table, err)
	}
	counts, there := map[string]Count{}, false
	for _, o := range objects {
		there = there || o.Table != nil && o.Table.Name == table
		if o.Counter != nil && o.Counter.Table == table {
			counts[o.Counter.Name] = Count{o.Counter.Packets, o.Counter.Bytes}
		}
	}
	if !there {
		return nil, fmt.Errorf("counters of table %s: %w", table, &StateError{Name: table, State: Absent})
	}
	return counts, nil
}

// Remove removes a table. It is no error when there is none.
func (n *Nft) Remove(ctx context.Context, table string) error {
	if s, err := n.sets(ctx, table); err != nil || s == nil {
		return err
	}
	if err := n.script(ctx, removal(table)...); err != nil {
		return fmt.Errorf("removing table %s: %w", table, err)
	}
	return nil
}

// sets reads the declarations of a table's sets; nil, when there is no such table.
func (n *Nft) sets(ctx context.Context, table string) (*nftTable, error) {
	names, err := n.tables(ctx, "inet")
	if err != nil || !slices.Contains(names, table) {
		return nil, err
	}
	out, err := n.unchanged(ctx, nftState, "-t", "list", "sets", "table", "inet", table)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sets of table %s: %w", table, err)
	}
	return readTable(out, table, false)
}

// missing reports whether nft found no such thing.
func missing(err error) bool {
	var e *ToolError
	return errors.As(err, &e) && strings.Contains(e.Message, "No such file or directory")
}

// Trial tells what a table does, and how long the trial lasts that it is part of.
func (n *Nft) Trial(ctx context.Context, table string) (left time.Duration, state State, err error) {
	left, state, err = n.trial(ctx, table)
	if missing(err) { // what was listed has gone since
		forgetListings()
		left, state, err = n.trial(ctx, table)
	}
	return left, state, err
}

func (n *Nft) trial(ctx context.Context, table string) (left time.Duration, state State, err error) {
	t, err := n.sets(ctx, table)
	if err != nil || t == nil {
		return 0, Absent, err
	}
	for _, guard := range []struct {
		set         string
		during, end State
	}{{trialSet, OnTrial, Inert}, {supersededSet, Aside, Returned}} {
		if t.sets[guard.set] == nil {
			continue
		}
		left, err := n.left(ctx, table, guard.set)
		if err != nil || left == 0 {
			return 0, guard.end, err
		}
		if guard.during == Aside { // or only about to be
			rules, err := n.askers(ctx, table)
			if err != nil || rules == nil {
				return 0, Settled, err
			}
		}
		return left, guard.during, nil
	}
	return 0, Settled, nil
}

var expiry = wording.Regexp(`expires (\w+)`)

// left is how long the elements of a guard's set will be there.
func (n *Nft) left(ctx context.Context, table, set string) (least time.Duration, err error) {
	out, err := n.run(ctx, "", "list", "set", "inet", table, set)
	if err != nil {
		return 0, fmt.Errorf("set %s of table %s: %w", set, table, err)
	}
	for _, m := range expiry().FindAllStringSubmatch(out, -1) {
		d, err := readDuration(m[1])
		if err != nil {
			return 0, fmt.Errorf("set %s of table %s: %w", set, table, err)
		}
		if least == 0 || d < least {
			least = d
		}
	}
	return least, nil
}

// readDuration reads a time as nft prints it, such as 1d2h3m4s5ms.
func readDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	number, err := strconv.Atoi(days)
	if err != nil {
		return 0, fmt.Errorf("%q is no time", text)
	}
	if rest == "" {
		return time.Duration(number) * day, nil
	}
	d, err := time.ParseDuration(rest)
	return d + time.Duration(number)*day, err
}

// writeDuration writes a time for nft, which takes eight digits for each unit (time_parse in its src/datatype.c).
func writeDuration(d time.Duration) string {
	return fmt.Sprintf("%dd%ds%dms", d/day, d%day/time.Second, d%time.Second/time.Millisecond)
}

const day = 24 * time.Hour
