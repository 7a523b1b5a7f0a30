// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// irq is the interrupt of a receive queue.
type irq struct {
	number int
	name   string
	cpu    int // the CPU that receives the interrupt
}

// queueIRQs examines which CPUs receive the interrupts of receive queues.
func queueIRQs(_ context.Context, h *host) []Finding {
	const id = "queue-irqs"
	online, err := h.read("sys/devices/system/cpu/online")
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	cpus, err := cpuList(online)
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	names, err := interruptNames(h)
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	balanced := runs(h, "irqbalance")
	found := eachDevice(h, id, func(d *device) []Finding {
		list := queueInterrupts(h, d, names)
		if len(list) < 2 {
			return nil
		}
		return []Finding{judgeIRQs(list, cpus, balanced, steered(h, d))}
	})
	if found == nil {
		found = []Finding{{ID: id, Severity: OK, Evidence: "no device has interrupts of several receive queues (/proc/interrupts)"}}
	}
	return found
}

// judgeIRQs returns a finding about the interrupts of a device's queues. balanced says that irqbalance runs. steering says that the kernel passes
// packets on to other CPUs.
func judgeIRQs(list []irq, cpus []int, balanced, steering bool) Finding {
	used := map[int]int{}
	for _, i := range list {
		used[i.cpu]++
	}
	able := min(len(list), len(cpus))
	f := Finding{
		ID: "queue-irqs", Severity: Note, Numbers: map[string]uint64{"queues": uint64(len(list)), "used": uint64(len(used)), "cpus": uint64(len(cpus))},
		Evidence: fmt.Sprintf("the interrupts of %d receive queues come to %s of %d (/proc/interrupts, /proc/irq)",
			len(list), wording.Things(len(used), "CPU", "CPUs"), len(cpus)),
		Cost: fmt.Sprintf("%s receive what %d could: XDP, and most of the stack, run where the interrupt comes in", wording.Things(len(used), "CPU", "CPUs"), able),
	}
	switch {
	case len(used) >= able, len(used) > 1 && balanced:
		return f.healthy()
	case len(used) == 1:
		f.Evidence = fmt.Sprintf("the interrupts of all %d receive queues come to CPU %d, of %d (/proc/interrupts, /proc/irq)", len(list), list[0].cpu, len(cpus))
		if !steering && !balanced {
			f.Severity = Warning
		}
	}
	if balanced {
		f.Evidence += "; irqbalance runs, and may move them under load"
		return f.advice("if they stay there under load: keep irqbalance from these interrupts (`--banirq`), and write one CPU into each /proc/irq/NUMBER/smp_affinity_list")
	}
	f.Evidence += "; irqbalance does not run"
	var set []string
	for i, q := range list {
		set = append(set, fmt.Sprintf("echo %d > /proc/irq/%d/smp_affinity_list", cpus[i%len(cpus)], q.number))
	}
	return f.command(set...)
}

// interruptNames returns the names of the interrupts in /proc/interrupts, by number.
func interruptNames(h *host) (map[int]string, error) {
	text, err := h.read("proc/interrupts")
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for line := range strings.Lines(text) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.Atoi(number); err == nil {
			if words := strings.Fields(rest); len(words) > 0 {
				names[n] = words[len(words)-1]
			}
		}
	}
	return names, nil
}

var (
	// virtioQueue matches the name of a virtio device's receive queue, such as virtio1-input.0.
	virtioQueue = regexp.MustCompile(`^(virtio\d+)-input\.\d+$`)
	// otherQueue matches names of receive queues' interrupts of other drivers. noQueue matches names of their other interrupts.
	otherQueue = regexp.MustCompile(`(?i)rx|comp\d|fp-\d|[-.]\d+(@|$)`)
	noQueue    = regexp.MustCompile(`(?i)async|mgmnt|admin|misc|config|control|output|fdir|(^|[-.])tx[-.]?\d*$`)
)

// queueInterrupts lists the interrupts of a device's receive queues, sorted by number. It returns nil if /sys belongs to another network namespace,
// in which the index of the device differs.
func queueInterrupts(h *host, d *device, names map[int]string) (list []irq) {
	dir := "sys/class/net/" + d.name + "/"
	if index, err := h.number(dir + "ifindex"); err != nil || index != uint64(d.index) {
		return nil
	}
	own := map[int]bool{}
	entries, _ := fs.ReadDir(h.root, dir+"device/msi_irqs") // for virtio the interrupts are in the parent directory
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			own[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		virtio := virtioQueue.FindStringSubmatch(names[n])
		if virtio == nil && !(own[n] && otherQueue.MatchString(names[n]) && !noQueue.MatchString(names[n])) {
			continue
		}
		if virtio != nil {
			if _, err := fs.Stat(h.root, "sys/bus/virtio/devices/"+virtio[1]+"/net/"+d.name); err != nil {
				continue
			}
		}
		if cpu, is := comesTo(h, n); is {
			list = append(list, irq{n, names[n], cpu})
		}
	}
	return list
}

// comesTo returns the CPU that receives an interrupt: the CPU that the kernel has chosen, or the first allowed one.
func comesTo(h *host, number int) (cpu int, is bool) {
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		text, err := h.read(fmt.Sprintf("proc/irq/%d/%s", number, file))
		if err != nil {
			continue
		}
		if cpus, err := cpuList(text); err == nil && len(cpus) > 0 {
			return cpus[0], true
		}
	}
	return 0, false
}

// cpuList parses a list of CPUs, such as 0-3,8.
func cpuList(text string) (cpus []int, err error) {
	for word := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if word == "" {
			continue
		}
		first, last, is := strings.Cut(word, "-")
		if !is {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("a list of CPUs: %w", err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, fmt.Errorf("a list of CPUs: %w", err)
		}
		for ; from <= to; from++ {
			cpus = append(cpus, from)
		}
	}
	return cpus, nil
}

// runs reports whether a program runs. program is the name of its process.
func runs(h *host, program string) bool {
	files, _ := fs.Glob(h.root, "proc/[0-9]*/comm")
	return slices.ContainsFunc(files, func(file string) bool {
		name, err := h.read(file)
		return err == nil && strings.TrimSpace(name) == program
	})
}
