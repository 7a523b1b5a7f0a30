// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// cpuCounts is a row of /proc/net/softnet_stat (softnet_seq_show in net/core/net-procfs.c).
type cpuCounts struct {
	cpu                                   int
	processed, dropped, squeezed, limited uint64
}

// parseSoftnet parses a row of hexadecimal numbers for each online CPU.
func parseSoftnet(text string) (rows []cpuCounts, err error) {
	for line := range strings.Lines(text) {
		var columns []uint64
		for _, field := range strings.Fields(line) {
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("softnet_stat: %w", err)
			}
			columns = append(columns, n)
		}
		if len(columns) < 3 {
			return nil, errors.New("softnet_stat: a row has fewer than three columns")
		}
		row := cpuCounts{cpu: len(rows), processed: columns[0], dropped: columns[1], squeezed: columns[2]}
		if len(columns) > 10 {
			row.limited = columns[10]
		}
		if len(columns) > 12 { // since Linux 5.10 the row has the CPU's number
			row.cpu = int(columns[12])
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func softnet(ctx context.Context, h *host) []Finding {
	before, after, err := twice(ctx, h, func() ([]cpuCounts, error) {
		text, err := h.read(netFile("softnet_stat"))
		if err != nil {
			return nil, err
		}
		return parseSoftnet(text)
	})
	if err == nil && len(before) != len(after) {
		err = errors.New("a CPU came or went meanwhile")
	}
	if err != nil {
		return []Finding{unseen("softnet-drops", err)}
	}
	backlog, _ := h.number(sysctlFile("net", "core", "netdev_max_backlog"))
	return []Finding{
		softnetDrops(before, after, backlog), softnetSqueezes(before, after), balance(before, after, h.interval.Seconds()),
	}
}

// perCPU sums a counter over all CPUs. where lists up to eight CPUs that have counted, with their counts.
func perCPU(before, after []cpuCounts, counter func(cpuCounts) uint64) (sum change, where string) {
	var words []string
	for i := range after {
		c := changed(counter(before[i]), counter(after[i]))
		sum = sum.plus(c)
		if c.total > 0 && len(words) < 8 {
			words = append(words, fmt.Sprintf("cpu%d %s", after[i].cpu, wording.Count(c.total)))
		}
	}
	if where = strings.Join(words, ", "); where != "" {
		where = "; " + where
	}
	return sum, where
}

// softnetDrops returns a finding about packets that were dropped because a CPU's backlog was full. backlog is the length of the backlog, 0 when it is
// not known.
func softnetDrops(before, after []cpuCounts, backlog uint64) Finding {
	sum, where := perCPU(before, after, func(c cpuCounts) uint64 { return c.dropped })
	f := Finding{
		ID: "softnet-drops", Severity: sum.severity(Problem),
		Evidence: fmt.Sprintf("packets dropped before the stack, CPU backlog full: %s%s (/proc/net/softnet_stat, column 2)", sum, where),
		Numbers:  map[string]uint64{"dropped": sum.total, "new": sum.new, "max_backlog": backlog},
		Cost:     "these packets were lost whatever they were; an XDP program decides before this queue",
	}
	switch {
	case f.Severity == OK:
		return f.healthy()
	case backlog == 0:
		return f.advice("raise net.core.netdev_max_backlog in the machine's first network namespace")
	}
	return f.command(fmt.Sprintf("sysctl -w net.core.netdev_max_backlog=%d", max(2*backlog, 4096)))
}

// softnetSqueezes returns a finding on how often a CPU stopped receiving although packets were left, because its budget or its time was used up.
func softnetSqueezes(before, after []cpuCounts) Finding {
	sum, where := perCPU(before, after, func(c cpuCounts) uint64 { return c.squeezed })
	f := Finding{
		ID: "softnet-squeezes", Severity: sum.severity(Note),
		Evidence: fmt.Sprintf("receiving stopped with packets left: %s%s (/proc/net/softnet_stat, column 3)", sum, where),
		Numbers:  map[string]uint64{"squeezed": sum.total, "new": sum.new},
		Cost:     "packets wait in the ring for the next turn; when they come faster than they are taken the ring drops",
	}
	switch {
	case sum.new == 0 && sum.total < 1000:
		return f.healthy()
	case sum.new >= 10:
		f.Severity = Warning
	}
	return f.command("sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000")
}

// busyRate is the number of packets per second from which it matters which CPU receives them.
const busyRate = 50000

// balance returns a finding if one CPU does all of the receiving.
func balance(before, after []cpuCounts, seconds float64) Finding {
	var sum, most uint64
	cpu := 0
	for i := range after {
		n := changed(before[i].processed, after[i].processed).new
		sum += n
		if n > most {
			most, cpu = n, after[i].cpu
		}
	}
	rate := uint64(float64(sum) / max(seconds, 0.001))
	f := Finding{
		ID: "receive-balance", Severity: Note,
		Evidence: fmt.Sprintf("cpu%d takes in %d%% of %s packets/s, on a host of %d CPUs (/proc/net/softnet_stat, column 1)",
			cpu, percent(most, sum), wording.Count(rate), len(after)),
		Numbers: map[string]uint64{"packets_per_second": rate, "busiest_percent": percent(most, sum)},
		Cost:    "the host receives as fast as one core can, while the others wait",
	}
	if len(after) < 2 || rate < busyRate || percent(most, sum) < 90 {
		return f.healthy()
	}
	return f.advice("more receive queues where the device has them, or receive packet steering: see queues")
}
