// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// cpuTime has the ticks of a CPU, and the ticks in which the hypervisor gave the CPU to other machines.
type cpuTime struct{ total, stolen uint64 }

// readCPU reads the first eight columns of a CPU's line in /proc/stat (proc(5)). The last of these columns is stolen time.
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
			if i == 7 {
				t.stolen = n
			}
		}
		return t, nil
	}
	return t, fmt.Errorf("cpu time: no CPU %d in /proc/stat", cpu)
}

// stolenSince returns the share of the time since before in which the hypervisor gave the CPU to other machines, from 0 to 1.
func (t cpuTime) stolenSince(before cpuTime) float64 {
	if t.total <= before.total {
		return 0
	}
	return float64(t.stolen-before.stolen) / float64(t.total-before.total)
}
