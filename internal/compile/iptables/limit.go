package iptables

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// over is the match that holds for what exceeds a limit, as iptables-save writes it. All lines with a limit share its table.
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

// crowded is the match that holds for the packet that begins a connection more than there may be; see crowdLines in
// codegen/nftables. Each line with it counts for itself.
func (f *familyBuilder) crowded(c *ir.ConnLimit) string {
	side, prefix := "saddr", c.Src
	if prefix == nil {
		side, prefix = "daddr", c.Dst
	}
	return fmt.Sprintf("-m conntrack ! --ctstatus CONFIRMED -m connlimit --connlimit-above %d --connlimit-mask %d --connlimit-%s",
		c.Most, [2]int{prefix.V4, prefix.V6}[f.family], side)
}

// buckets is the size of a hash table for so many entries; hashlimit makes room for at least one entry a bucket.
func buckets(entries int) int { return min(max(entries/4, 1), 1<<16) }

// limitName is the name of a limit's table, under which the kernel lists it in /proc/net/ipt_hashlimit. It begins with
// that of all of ours, so that two generations have each their own; the kernel removes it with the last line that has it.
func (b *builder) limitName(limit int) string {
	name, ok := b.limits[limit]
	if !ok {
		name = b.names.take(b.o.Name+"-over-"+strings.ReplaceAll(b.pl.Program.Limits[limit].Rule, ":", "-"), maxLimitName)
		b.limits[limit] = name
	}
	return name
}

// maxLimitName is the longest name of a table of hashlimit; the kernel takes those of a file (NAME_MAX), which are longer.
const maxLimitName = 31
