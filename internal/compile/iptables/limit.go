// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// over returns the match for packets that exceed a limit, in the form of iptables-save. All lines with a limit share its table.
func (f *familyBuilder) over(limit int) string {
	l := &f.pl.Program.Limits[limit]
	unit := map[time.Duration]string{time.Second: "sec", time.Minute: "min", time.Hour: "hour", 24 * time.Hour: "day"}[l.Per]
	text := fmt.Sprintf("-m hashlimit --hashlimit-above %d/%s --hashlimit-burst %d", l.Rate, unit, l.Burst)
	var mode, masks string
	for side, p := range []*ir.Prefixes{l.Src, l.Dst} {
		if p == nil {
			continue
		}
		word := [2]string{"src", "dst"}[side]
		mode += "," + word + "ip"
		if length := [2]int{p.V4, p.V6}[f.family]; length < [2]int{32, 128}[f.family] {
			masks += fmt.Sprintf(" --hashlimit-%smask %d", word, length)
		}
	}
	if mode == "" {
		return text + " --hashlimit-name " + f.limitName(limit)
	}
	return fmt.Sprintf("%s --hashlimit-mode %s --hashlimit-name %s --hashlimit-htable-size %d --hashlimit-htable-max %d "+
		"--hashlimit-htable-expire %d%s", text, mode[1:], f.limitName(limit), buckets(plan.HeldPrefixes(l.Max)), plan.HeldPrefixes(l.Max), 1000*plan.Drained(l), masks)
}

// crowded returns the match for a packet that opens a connection above the limit. crowdLines in package nftables has details. Each line with this
// match has its own count.
func (f *familyBuilder) crowded(c *ir.ConnLimit) string {
	side, prefix := "saddr", c.Src
	if prefix == nil {
		side, prefix = "daddr", c.Dst
	}
	return fmt.Sprintf("-m conntrack ! --ctstatus CONFIRMED -m connlimit --connlimit-above %d --connlimit-mask %d --connlimit-%s",
		c.Most, [2]int{prefix.V4, prefix.V6}[f.family], side)
}

// buckets returns the number of buckets of a hash table for a number of entries. hashlimit makes space for at least one entry per bucket.
func buckets(entries int) int { return min(max(entries/4, 1), 1<<16) }

// limitName returns the name of a limit's table, which the kernel lists in /proc/net/ipt_hashlimit. The name begins with the name of the ruleset, so
// that two generations have separate tables. The kernel removes a table together with the last line that uses it.
func (b *builder) limitName(limit int) string {
	name, ok := b.limits[limit]
	if !ok {
		name = b.names.take(b.o.Name+"-over-"+strings.ReplaceAll(b.pl.Program.Limits[limit].Rule, ":", "-"), maxLimitName)
		b.limits[limit] = name
	}
	return name
}

// maxLimitName is the largest length of the name of a hashlimit table. The kernel's limit is that of a file name (NAME_MAX), which is larger.
const maxLimitName = 31
