package netfilter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

// nftObject is one of a listing in JSON (man libnftables-json).
type nftObject struct {
	Set *struct{ Elem []json.RawMessage }
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

// Tables lists the tables whose names are prefix and a number.
func (n *Nft) Tables(_ context.Context, prefix string) (names []string, err error) {
	for family := range nftFamilies {
		of, err := nftTables(family)
		if err != nil {
			return nil, err
		}
		names = append(names, of...)
	}
	return numbered(names, prefix, nil), nil
}

// HasTable reports whether there is a table of family inet of a name.
func HasTable(name string) (bool, error) {
	names, err := nftTables("inet")
	return slices.Contains(names, name), err
}

// Counters reads the named counters of a table.
func (n *Nft) Counters(_ context.Context, table string) (map[string]Count, error) {
	there, err := HasTable(table)
	if err == nil && !there {
		err = &StateError{Name: table, State: Absent}
	}
	counts := map[string]Count{}
	for family := range nftFamilies {
		if err != nil {
			return nil, fmt.Errorf("counters of table %s: %w", table, err)
		}
		var of map[string]Count
		of, err = nftCounters(family, table)
		maps.Copy(counts, of)
	}
	return counts, err
}

// Remove removes a table. It is no error when there is none. It takes no program.
func (n *Nft) Remove(_ context.Context, table string) error { return removeNftTable(table) }

// sets reads the declarations of a table's sets; nil, when there is no such table.
func (n *Nft) sets(ctx context.Context, table string) (*nftTable, error) {
	if there, err := HasTable(table); err != nil || !there {
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
func (n *Nft) Trial(_ context.Context, table string) (left time.Duration, state State, err error) {
	if there, err := HasTable(table); err != nil || !there {
		return 0, Absent, err
	}
	sets, err := nftSets(table)
	if err != nil {
		return 0, Absent, err
	}
	for _, guard := range []struct {
		set         string
		during, end State
	}{{trialSet, OnTrial, Inert}, {supersededSet, Aside, Returned}} {
		if !sets[guard.set] {
			continue
		}
		left, err := nftLeft(table, guard.set)
		if err != nil || left == 0 {
			return 0, guard.end, err
		}
		if guard.during == Aside { // or only about to be
			rules, err := askers(table)
			if err != nil || rules == nil {
				return 0, Settled, err
			}
		}
		return left, guard.during, nil
	}
	return 0, Settled, nil
}

// writeDuration writes a time for nft, which takes eight digits for each unit (time_parse in its src/datatype.c).
func writeDuration(d time.Duration) string {
	return fmt.Sprintf("%dd%ds%dms", d/day, d%day/time.Second, d%time.Second/time.Millisecond)
}

const day = 24 * time.Hour
