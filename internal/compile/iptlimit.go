package compile

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// iptRate says why hashlimit does not have a limit, "" when it has. Its bucket is that of ir.Limit: full at first, with
// room for the burst, and what exceeds it takes nothing out; but it is filled once a tick of the kernel's clock (HZ), and
// the time of a packet is cut to whole microseconds (net/netfilter/xt_hashlimit.c).
func iptRate(l *ir.Limit) (why string) {
	const most = 1_000_000 // XT_HASHLIMIT_BURST_MAX, and XT_HASHLIMIT_SCALE_v2 a second
	each := uint64(l.Per/time.Microsecond) / l.Rate
	switch {
	case l.Bits:
		return "hashlimit counts blocks of 16 octets, not bits"
	case uint64(l.Per/time.Microsecond)%l.Rate > 0 && each < minPrecision:
		return "hashlimit counts in whole microseconds, which is too coarse for this rate"
	case l.Burst > most:
		return fmt.Sprintf("hashlimit has bursts of at most %d packets", most)
	case drained(l) > int64(24*time.Hour/time.Second):
		return "hashlimit has bursts of at most what comes in one day"
	}
	return ""
}

// over is the match that holds for what exceeds a limit. The lines of a limit share its table, which has the name of the
// limit in the table of rules that the line is in: two tables of the kernel cannot have the same limit, but a rule runs
// in one.
func (f *iptFamily) over(limit int) string {
	l := &f.pl.Program.Limits[limit]
	text := fmt.Sprintf("-m hashlimit --hashlimit-above %d/%s --hashlimit-burst %d", l.Rate, unitName(l.Per), l.Burst)
	var mode, masks string
	for side, p := range []*ir.Prefixes{l.Src, l.Dst} {
		if p == nil {
			continue
		}
		word := [...]string{"src", "dst"}[side]
		mode += "," + word + "ip"
		if length := f.prefixLength(p); length < []int{32, 128}[f.family] {
			masks += fmt.Sprintf(" --hashlimit-%smask %d", word, length)
		}
	}
	if mode != "" {
		text += " --hashlimit-mode " + mode[1:] + masks
		text += fmt.Sprintf(" --hashlimit-htable-size %d --hashlimit-htable-max %d", buckets(l.Max), l.Max)
	}
	text += " --hashlimit-name " + f.limitName(limit)
	if mode != "" {
		text += fmt.Sprintf(" --hashlimit-htable-expire %d", drained(l)*1000)
	}
	return text
}

func (f *iptFamily) prefixLength(p *ir.Prefixes) int {
	if f.family == packet.FamilyIPv4 {
		return p.V4
	}
	return p.V6
}

// buckets is the size of a hash table for so many entries; hashlimit makes room for at least one entry a bucket.
func buckets(entries int) int { return min(max(entries/4, 1), 1<<16) }

// limitName is the name of a limit's table, under which the kernel lists it in /proc/net/ipt_hashlimit: it begins with
// that of the generation, so that the limits of two of them are apart.
func (b *iptBuilder) limitName(limit int) string {
	name, ok := b.limits[limit]
	if !ok {
		name = b.names.take(fmt.Sprintf("%s-over-%s", b.o.Name, b.pl.Program.Limits[limit].Rule), maxLimitName)
		b.limits[limit] = name
	}
	return name
}

// maxLimitName is the longest name of a table of hashlimit that iptables takes (NAME_MAX of the kernel is longer, IFNAMSIZ
// of older interfaces shorter).
const maxLimitName = 31
