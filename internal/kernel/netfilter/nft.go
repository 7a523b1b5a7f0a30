// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Nft is the program nft.
type Nft struct {
	tool
	refreshes *bool // whether adding an existing element renews its timeout; nil: canRefresh finds out
}

// nftPackage is the package that contains nft.
const nftPackage = "nftables"

// oldestNft is the first version of nft that supports ingress chains in tables of family inet.
var oldestNft = [3]int{0, 9, 7}

// unfit returns the error that nft is too old or was built without a needed feature.
func unfit(have, need string) error {
	return wording.Hinted(fmt.Sprintf("the program nft is version %s, and %s is needed", have, need), "install a newer nft, or use another target")
}

var versionForm = wording.Regexp(`v(\d+)\.(\d+)(?:\.(\d+))?`)

// FindNft finds nft and checks that it has the features that this package needs.
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
	if known {
		suited.Store(file, true)
	}
	return &Nft{tool: t}, nil
}

// suited has the nft files that passed the check of FindNft, so that each file is checked only once.
var suited sync.Map // of fileIdentity

// fileIdentity identifies a file. If an upgrade replaces the file by another one of the same name, the identity differs.
type fileIdentity struct {
	path             string
	device, inode    uint64
	size             int64
	modified, status unix.Timespec
}

// identify returns the identity of a file. ok is false if there is none.
func identify(path string) (fileIdentity, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileIdentity{}, false
	}
	return fileIdentity{path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, true
}

// script runs a script as one transaction, which takes effect completely or not at all.
func (n *Nft) script(ctx context.Context, lines ...string) error {
	_, err := n.run(ctx, strings.Join(lines, "\n")+"\n", "-f", "-")
	return err
}

// nftFamilies are the families of a generation's tables, by their names in nft.
var nftFamilies = map[string]uint8{"inet": unix.NFPROTO_INET, "netdev": unix.NFPROTO_NETDEV}

// Tables lists the tables whose names consist of prefix and a number.
func (n *Nft) Tables(_ context.Context, prefix string) (names []string, err error) {
	for _, family := range nftFamilies {
		tables, err := nftable.Tables(family)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			names = append(names, t.Name)
		}
	}
	return numbered(names, prefix, nil), nil
}

// HasTable reports whether there is a table of this name in family inet.
func HasTable(name string) (bool, error) { return nftable.Has(unix.NFPROTO_INET, name) }

// Counters reads the named counters of a table.
func (n *Nft) Counters(_ context.Context, table string) (map[string]Count, error) {
	there, err := HasTable(table)
	if err == nil && !there {
		err = &StateError{Name: table, State: Absent}
	}
	counts := map[string]Count{}
	for _, family := range nftFamilies {
		if err != nil {
			return nil, fmt.Errorf("counters of table %s: %w", table, err)
		}
		var objects []*nftable.Object
		objects, err = nftable.Objects(family, table)
		for _, o := range objects {
			if o.Type == unix.NFT_OBJECT_COUNTER {
				counts[o.Name] = Count{o.Packets, o.Bytes}
			}
		}
	}
	return counts, err
}

// Remove removes a table without running nft. It is not an error if there is no such table.
func (n *Nft) Remove(_ context.Context, table string) error { return removeNftTable(table) }

// Trial returns the state of a table. If the table takes part in a trial, left is the time left.
func (n *Nft) Trial(_ context.Context, table string) (left time.Duration, state State, err error) {
	if there, err := HasTable(table); err != nil || !there {
		return 0, Absent, err
	}
	sets, err := nftable.Sets(unix.NFPROTO_INET, table)
	if err != nil {
		return 0, Absent, err
	}
	for _, guard := range []struct {
		set         string
		during, end State
	}{{trialSet, OnTrial, Inert}, {supersededSet, Aside, Returned}} {
		if nftable.Named(sets, guard.set) == nil {
			continue
		}
		left, err := nftLeft(table, guard.set)
		if err != nil || left == 0 {
			return 0, guard.end, err
		}
		if guard.during == Aside { // or the table will be set aside soon
			rules, err := askers(table)
			if err != nil || rules == nil {
				return 0, Settled, err
			}
		}
		return left, guard.during, nil
	}
	return 0, Settled, nil
}

// writeDuration formats a duration for nft, which accepts eight digits for each unit (time_parse in nft's src/datatype.c).
func writeDuration(d time.Duration) string {
	return fmt.Sprintf("%dd%ds%dms", d/day, d%day/time.Second, d%time.Second/time.Millisecond)
}

const day = 24 * time.Hour

// nftLeft returns the time until the first element of a set of family inet expires. It returns 0 when no element expires.
func nftLeft(table, set string) (least time.Duration, err error) {
	elements, err := nftable.Elements(unix.NFPROTO_INET, table, set)
	for _, e := range elements {
		left := time.Duration(e.Left) * time.Millisecond
		if left > 0 && (least == 0 || left < least) {
			least = left
		}
	}
	return least, err
}
