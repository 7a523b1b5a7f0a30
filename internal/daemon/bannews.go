package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// banNews has the bans to report: one line a second at most, so that forged sources cannot fill the log.
type banNews struct {
	told    time.Time
	head    string // of the bans since, the one with the most offenders in it
	offends int
	bans    map[string]int // how many, by the rule
	sparing string         // the first prefix that was not banned
	spares  int
}

// newsEvery is the least time between two lines.
const newsEvery = time.Second

// banned adds a ban by a rule, for this number of offenders.
func (n *banNews) banned(rule, text string, offends int) {
	if n.bans == nil {
		n.bans = map[string]int{}
	}
	n.bans[rule]++
	if offends > n.offends {
		n.head, n.offends = text, offends
	}
}

// skipped notes a prefix that is not banned.
func (n *banNews) skipped(text string) {
	n.sparing = cmp.Or(n.sparing, text)
	n.spares++
}

// summary is the line that is due, "" when there is nothing to tell, or it is too soon.
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
