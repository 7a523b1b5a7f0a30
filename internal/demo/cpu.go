package demo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// cpuTime is how many ticks a CPU has spent, and how many of them idle.
type cpuTime struct{ total, idle uint64 }

// readCPU reads the line of a CPU in /proc/stat (proc(5)): the first eight columns, of which the fourth and fifth are
// idle and waiting for disks.
func readCPU(cpu int) (t cpuTime, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, fmt.Errorf("cpu time: %w", err)
	}
	for line := range strings.Lines(string(stat)) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "cpu"+strconv.Itoa(cpu) {
			continue
		}
		for i, column := range f[1:9] {
			n, err := strconv.ParseUint(column, 10, 64)
			if err != nil {
				return t, fmt.Errorf("cpu time: %w", err)
			}
			t.total += n
			if i == 3 || i == 4 {
				t.idle += n
			}
		}
		return t, nil
	}
	return t, fmt.Errorf("cpu time: no CPU %d in /proc/stat", cpu)
}

// busySince is the share of the time since before that the CPU was not idle, 0 to 1.
func (t cpuTime) busySince(before cpuTime) float64 {
	if t.total <= before.total {
		return 0
	}
	return 1 - float64(t.idle-before.idle)/float64(t.total-before.total)
}
