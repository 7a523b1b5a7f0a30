// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// banNews collects bans for the log. It writes at most one line a second, so that forged sources cannot fill the log.
type banNews struct {
	told    time.Time
	head    string // of the bans since the last line: the message of the ban with the most offenders
	offends int
	bans    map[string]int // the number of bans of each rule
	sparing string         // the message for the first prefix that was not banned
	spares  int
}

// newsEvery is the least time between two lines.
const newsEvery = time.Second

// banned adds a ban by a rule. offends is the number of offenders in the banned prefix.
func (n *banNews) banned(rule, text string, offends int) {
	if n.bans == nil {
		n.bans = map[string]int{}
	}
	n.bans[rule]++
	if offends > n.offends {
		n.head, n.offends = text, offends
	}
}

// skipped adds a prefix that is not banned.
func (n *banNews) skipped(text string) {
	n.sparing = cmp.Or(n.sparing, text)
	n.spares++
}

// summary returns the next line for the log. It returns "" when there is nothing to report, or when the last line is less than newsEvery old.
func (n *banNews) summary(now time.Time) string {
	if len(n.bans) == 0 && n.spares == 0 || now.Sub(n.told) < newsEvery {
		return ""
	}
	var parts []string
	all := 0
	for _, rule := range slices.Sorted(maps.Keys(n.bans)) {
		all += n.bans[rule]
		parts = append(parts, fmt.Sprintf("%d by rule %s", n.bans[rule], rule))
	}
	text := n.head
	if all > 1 {
		text += fmt.Sprintf("; in all %d bans: %s", all, strings.Join(parts, ", "))
	}
	if n.spares > 0 {
		text = strings.TrimPrefix(text+"; "+n.sparing, "; ")
	}
	if n.spares > 1 {
		text += fmt.Sprintf("; in all %d not banned", n.spares)
	}
	*n = banNews{told: now}
	return text
}
