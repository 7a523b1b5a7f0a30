// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"testing"
)

// machine returns the files of a host with 4 CPUs. Its device eth0 has the interface index 3 and the given interrupts. Each is given as number: name
// and CPUs.
func machine(interrupts map[int][2]string, more map[string]string) map[string]string {
	files := map[string]string{"sys/devices/system/cpu/online": "0-3\n", "sys/class/net/eth0/ifindex": "3\n", "proc/1/comm": "systemd\n"}
	table := "            CPU0       CPU1       CPU2       CPU3\n"
	for n, i := range interrupts {
		table += fmt.Sprintf(" %d:    12 0 0 0  PCI-MSIX-0000:00:03.0   %d-edge      %s\n", n, n, i[0])
		files[fmt.Sprintf("proc/irq/%d/smp_affinity_list", n)] = "0-3\n"
		files[fmt.Sprintf("proc/irq/%d/effective_affinity_list", n)] = i[1] + "\n"
	}
	files["proc/interrupts"] = table + "NMI:          0          0   Non-maskable interrupts\n"
	for file, text := range more {
		files[file] = text
	}
	return files
}

// TestQueueIRQs tests hosts with files in /proc and /sys for a virtio device and for network cards.
func TestQueueIRQs(t *testing.T) {
	virtio := map[string]string{"sys/bus/virtio/devices/virtio2/net/eth0/ifindex": "3\n"}
	with := func(files map[string]string, more ...string) map[string]string {
		all := map[string]string{}
		for file, text := range files {
			all[file] = text
		}
		for _, file := range more {
			all[file] = ""
		}
		return all
	}
	card0 := map[string]string{}
	for n := 40; n < 45; n++ {
		card0[fmt.Sprintf("sys/class/net/eth0/device/msi_irqs/%d", n)] = "msix\n"
	}
	balancer := map[string]string{"proc/77/comm": "irqbalance\n"}
	for file, text := range virtio {
		balancer[file] = text
	}
	steers := map[string]string{"sys/class/net/eth0/queues/rx-0/rps_cpus": "f\n"}
	for file, text := range virtio {
		steers[file] = text
	}
	two := func(a, b string) map[int][2]string {
		return map[int][2]string{40: {"virtio2-config", "0"}, 41: {"virtio2-input.0", a}, 42: {"virtio2-output.0", "3"}, 43: {"virtio2-input.1", b}, 44: {"virtio3-input.0", "2"}}
	}
	mend2 := "echo 0 > /proc/irq/41/smp_affinity_list && echo 1 > /proc/irq/43/smp_affinity_list"
	cards := func(name string, cpus ...string) map[int][2]string {
		all := map[int][2]string{}
		for i, cpu := range cpus {
			all[41+i] = [2]string{fmt.Sprintf(name, i), cpu}
		}
		return all
	}
	mend3 := "echo 0 > /proc/irq/41/smp_affinity_list && echo 1 > /proc/irq/42/smp_affinity_list && echo 2 > /proc/irq/43/smp_affinity_list"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"virtio, one CPU", machine(two("0", "0"), virtio), "warning queue-irqs: " + mend2},
		{"virtio, two CPUs", machine(two("0", "1"), virtio), "ok queue-irqs:"},
		{"virtio, one CPU, steered", machine(two("0", "0"), steers), "note queue-irqs: " + mend2},
		{"virtio, one CPU, irqbalance", machine(two("0", "0"), balancer), "note queue-irqs: if they stay there under load: keep irqbalance from these interrupts " +
			"(`--banirq`), and write one CPU into each /proc/irq/NUMBER/smp_affinity_list"},
		{"a virtio device of another", machine(two("0", "0"), nil), "ok queue-irqs:"},
		{"another namespace's", with(machine(two("0", "0"), virtio), "sys/class/net/eth0/ifindex"), "ok queue-irqs:"},
		{"one queue", machine(map[int][2]string{41: {"virtio2-input.0", "0"}}, virtio), "ok queue-irqs:"},
		{"ixgbe, one CPU", machine(cards("eth0-TxRx-%d", "2", "2", "2"), card0), "warning queue-irqs: " + mend3},
		{"ixgbe, two CPUs of three", machine(cards("eth0-TxRx-%d", "2", "2", "3"), card0), "note queue-irqs: " + mend3},
		{"ixgbe, three CPUs", machine(cards("eth0-TxRx-%d", "2", "0", "3"), card0), "ok queue-irqs:"},
		{"mlx5, one CPU", machine(cards("mlx5_comp%d@pci:0000:01:00.0", "1", "1", "1"), card0), "warning queue-irqs: " + mend3},
		{"mlx5's others", machine(map[int][2]string{41: {"mlx5_async0@pci:0000:01:00.0", "1"}, 42: {"mlx5_comp0@pci:0000:01:00.0", "1"}}, card0), "ok queue-irqs:"},
		{"ena and its management", machine(map[int][2]string{40: {"ena-mgmnt@pci:0000:00:05.0", "0"}, 41: {"eth0-Tx-Rx-0", "0"}, 42: {"eth0-Tx-Rx-1", "1"}}, card0), "ok queue-irqs:"},
		{"bnxt's queues that send", machine(map[int][2]string{41: {"eth0-tx-0", "0"}, 42: {"eth0-tx-1", "0"}, 43: {"eth0-rx-0", "0"}}, card0), "ok queue-irqs:"},
		{"a disk's", machine(cards("nvme0q%d", "0", "0", "0"), nil), "ok queue-irqs:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := captured(tt.files)
			d := card(func(d *device) { d.index = 3 })
			h.devices = func() ([]*device, error) { return []*device{d}, nil }
			same(t, queueIRQs(t.Context(), h), tt.want)
		})
	}
	h := captured(machine(two("0-3", "0-3"), virtio))
	h.devices = func() ([]*device, error) {
		return []*device{card(func(d *device) { d.index, d.facing = 3, false })}, nil
	}
	same(t, queueIRQs(t.Context(), h), "note queue-irqs: "+mend2) // the device receives no packets from outside
}
