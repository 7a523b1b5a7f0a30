// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// tracked is the state of the connection tracking table.
type tracked struct {
	count, max, buckets uint64
	maxFixed            bool // whether the maximum cannot be set in this network namespace
}

// errNoConntrack says that the kernel does not track connections.
var errNoConntrack = errors.New("connection tracking is not loaded")

func readTracked(h *host) (t tracked, err error) {
	for name, to := range map[string]*uint64{"count": &t.count, "max": &t.max, "buckets": &t.buckets} {
		if *to, err = h.number(sysctlFile("net", "netfilter", "nf_conntrack_"+name)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = errNoConntrack
			}
			return t, err
		}
	}
	t.maxFixed = !h.writable(sysctlFile("net", "netfilter", "nf_conntrack_max"))
	return t, nil
}

// The cost of connection tracking for a packet. A core accepted 0.23 to 0.30 Mpps with it and 0.32 without, on the machine on which nftRule was
// measured.
const trackingCost = "0.2 to 1.2 µs a packet"

func conntrackTable(_ context.Context, h *host) []Finding {
	t, err := readTracked(h)
	if errors.Is(err, errNoConntrack) {
		return []Finding{{ID: "conntrack-table", Severity: OK, Evidence: err.Error()}}
	}
	if err != nil {
		return []Finding{unseen("conntrack-table", err)}
	}
	return []Finding{t.fill(), t.chains()}
}

// fill returns a finding about the number of used entries in the table.
func (t tracked) fill() Finding {
	f := Finding{
		ID: "conntrack-table", Severity: Warning,
		Evidence: fmt.Sprintf("%s of %s entries, %d%% (net.netfilter.nf_conntrack_count and _max)",
			wording.Count(t.count), wording.Count(t.max), percent(t.count, t.max)),
		Numbers: map[string]uint64{"count": t.count, "max": t.max},
		Cost:    "the first packet of each connection is dropped once the table is full",
	}
	if t.max == 0 { // 0 means no limit
		return f.healthy()
	}
	switch full := percent(t.count, t.max); {
	case full >= 95:
		f.Severity = Problem
		f.Cost = "the first packet of a new connection is dropped, or an old connection forgotten in its favour"
	case full < 75:
		return f.healthy()
	}
	// An entry takes 320 bytes, and a bucket 8.
	set := fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d net.netfilter.nf_conntrack_buckets=%d", 2*t.max, 2*t.max)
	if t.maxFixed {
		return f.advice("in the machine's first network namespace: " + set + "; or let nothing be tracked that need not be: see conntrack-services")
	}
	return f.command(set)
}

// longChain is the mean number of entries in a bucket above which a lookup has several cache misses.
const longChain = 4

// chains returns a finding about the length of the hash table's chains. Each entry is in the table twice, once for each direction.
func (t tracked) chains() Finding {
	f := Finding{
		ID: "conntrack-buckets", Severity: Warning,
		Evidence: fmt.Sprintf("%s entries in %s hash buckets (net.netfilter.nf_conntrack_buckets)", wording.Count(t.count), wording.Count(t.buckets)),
		Numbers:  map[string]uint64{"count": t.count, "max": t.max, "buckets": t.buckets},
	}
	if t.buckets == 0 {
		return f.healthy()
	}
	now, full := 2*t.count/t.buckets, 2*t.max/t.buckets
	f.Cost = fmt.Sprintf("each lookup goes through %d entries on average, and through %d when the table is full", now, full)
	switch {
	case now >= longChain:
	case full > 2*longChain:
		f.Severity = Note
	default:
		return f.healthy()
	}
	set := fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_buckets=%d", t.max)
	if t.maxFixed {
		return f.advice("in the machine's first network namespace: " + set)
	}
	return f.command(set)
}

// conntrackLosses reports losses of the table since it was created (/proc/net/stat/nf_conntrack, one row for each CPU).
func conntrackLosses(ctx context.Context, h *host) []Finding {
	before, after, err := twice(ctx, h, func() (map[string]uint64, error) {
		text, err := h.read(netFile("stat/nf_conntrack"))
		if err != nil {
			return nil, err
		}
		return sumColumns(text)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return []Finding{{ID: "conntrack-drops", Severity: OK, Evidence: "this kernel keeps no statistics of connection tracking"}}
	}
	if err != nil {
		return []Finding{unseen("conntrack-drops", err)}
	}
	var found []Finding
	for _, l := range losses {
		found = append(found, l.judge(before, after))
	}
	return found
}

// loss is a way in which packets or connections are lost in the table.
type loss struct {
	id      string
	columns []string // columns of /proc/net/stat/nf_conntrack
	what    string
	moving  Severity
	cost    string
	remedy  string
}

var losses = []loss{
	{"conntrack-drops", []string{"drop"}, "packets dropped because no entry could be made", Problem,
		"new connections fail while the table is full",
		"take the services that need no state out of it: see conntrack-services; or raise the maximum: see conntrack-table"},
	{"conntrack-early-drops", []string{"early_drop"}, "entries thrown out to make space", Warning,
		"the connections they stood for are cut when a rule asks for `established`",
		"take the services that need no state out of it: see conntrack-services; or raise the maximum: see conntrack-table"},
	{"conntrack-insert-failures", []string{"insert_failed", "chainlength"}, "packets dropped because their entry could not be inserted", Warning,
		"each is a packet lost, as of two DNS questions sent at once from one socket",
		"services that need no state: `track: false`; a `chainlength` that grows: see conntrack-buckets"},
}

func (l loss) judge(before, after map[string]uint64) Finding {
	f := Finding{ID: l.id, Cost: l.cost, Numbers: map[string]uint64{}}
	var sum change
	for _, c := range l.columns {
		sum = sum.plus(changed(before[c], after[c]))
		f.Numbers[c] = after[c]
	}
	f.Numbers["new"] = sum.new
	f.Evidence = fmt.Sprintf("%s: %s (%s in /proc/net/stat/nf_conntrack)", l.what, sum, strings.Join(l.columns, ", "))
	if f.Severity = sum.severity(l.moving); f.Severity == OK {
		return f.healthy()
	}
	return f.advice(l.remedy)
}

// sumColumns sums each column of a table of hexadecimal numbers. The first line of the table has the names of the columns.
func sumColumns(text string) (map[string]uint64, error) {
	sums := map[string]uint64{}
	var head []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if head == nil {
			head = fields
			continue
		}
		for i, field := range fields[:min(len(fields), len(head))] {
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", head[i], err)
			}
			sums[head[i]] += n
		}
	}
	return sums, nil
}

// conntrackLoose warns if conntrack creates entries for packets of unknown connections.
func conntrackLoose(ctx context.Context, h *host) []Finding {
	loose, err := h.number(sysctlFile("net", "netfilter", "nf_conntrack_tcp_loose"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []Finding{unseen("conntrack-loose", err)}
	}
	t, err := readTracked(h)
	if err != nil {
		return []Finding{unseen("conntrack-loose", err)}
	}
	f := Finding{
		ID: "conntrack-loose", Severity: Note,
		Evidence: fmt.Sprintf("net.netfilter.nf_conntrack_tcp_loose is %d, with %s entries in the table", loose, wording.Count(t.count)),
		Numbers:  map[string]uint64{"loose": loose},
		Cost: "an ACK of no connection gets an entry as if it had one: an ACK flood fills the table, and SYN protection in " +
			"front of tracked services lets it through. Caution: with 0, a connection that stands and has no entry, as an SSH " +
			"session opened before tracking began, becomes `invalid`, and rules that drop invalid cut it: look for yours with " +
			"`conntrack -L` first",
	}
	rules, _ := h.saved() // savedRules reports rules that could not be read
	switch proxied := slices.ContainsFunc(rules, savedRule.synproxies); {
	case loose != 0 && routerProtected(ctx, h):
		f.Severity = Problem
		f.Evidence += ", and the policy that runs protects services behind this host, for which `apply` had set it to 0"
		f.Cost = "the ACK that brings a cookie back is taken for one of a known connection and goes to a server that knows nothing of it: protected " +
			"connections fail; " + f.Cost
	case loose != 0 && proxied: // also while the table is empty, because a flood fills it
		f.Severity = Warning
		f.Evidence += ", and SYNPROXY is in the rules"
	case loose == 0 || t.count == 0:
		return []Finding{f.healthy()}
	}
	return []Finding{f.command("sysctl -w net.netfilter.nf_conntrack_tcp_loose=0")}
}

// routerProtected reports whether the running policy protects services behind this host with SYNPROXY, in netfilter or in XDP.
func routerProtected(ctx context.Context, h *host) bool {
	m, err := h.instance.Manifest(ctx)
	return err == nil && m.Strict()
}
