// SPDX-License-Identifier: Apache-2.0

// This file counts the packets that a network namespace receives, delivers locally and forwards. The placement of rules depends on these counts.

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Sample has the packet counts of this network namespace at one moment.
type Sample struct {
	Time      time.Time         `json:"time"`
	Arrived   uint64            `json:"arrived"`   // packets that the policy's devices have received
	Local     uint64            `json:"local"`     // packets that IP has delivered, without packets that the host sends to itself
	Forwarded uint64            `json:"forwarded"` // packets that IP has forwarded
	Softirq   time.Duration     `json:"softirq"`   // time that all CPUs of the machine have spent in softirqs
	Rules     map[string]uint64 `json:"rules"`     // packets that each rule has decided, by the rule's name; rules without packets are left out
	All       uint64            `json:"all"`       // packets that any rule, check or the default has decided
}

// CountPackets counts the packets of devices and of IP. It leaves Rules and All for the caller to set.
func CountPackets(devices []string) (*Sample, error) {
	s := &Sample{Time: time.Now(), Rules: map[string]uint64{}}
	for _, name := range devices {
		n, err := arrived(name)
		if err != nil {
			return nil, err
		}
		s.Arrived += n
	}
	if err := s.internet(); err != nil {
		return nil, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("time in interrupts: %w", err)
	}
	s.Softirq = softirq(stat)
	return s, nil
}

// arrived returns the number of packets that a device has received.
func arrived(device string) (uint64, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("device %s: %w", device, err)
	}
	if link.Attrs().Statistics == nil {
		return 0, nil
	}
	return link.Attrs().Statistics.RxPackets, nil
}

// internet reads the IP counters of this namespace. The counters of a protocol that the kernel does not support are 0.
func (s *Sample) internet() error {
	v4, err := os.ReadFile(sockets.ProcFile("snmp"))
	if err != nil {
		return fmt.Errorf("counters of IP: %w", err)
	}
	v6, err := os.ReadFile(sockets.ProcFile("snmp6"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("counters of IPv6: %w", err)
	}
	loopback, err := arrived("lo")
	if err != nil {
		return err
	}
	delivered := ipCounter(v4, "InDelivers") + ip6Counter(v6, "Ip6InDelivers")
	s.Local = delivered - min(delivered, loopback)
	s.Forwarded = ipCounter(v4, "ForwDatagrams") + ip6Counter(v6, "Ip6OutForwDatagrams")
	return nil
}

// ipCounter returns a counter of /proc/net/snmp, in which a line of values follows a line of names.
func ipCounter(text []byte, name string) uint64 {
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Ip:":
		case names == nil:
			names = fields
		default:
			return number(fields, slices.Index(names, name))
		}
	}
	return 0
}

// ip6Counter returns a counter of /proc/net/snmp6, which has one counter a line.
func ip6Counter(text []byte, name string) uint64 {
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			return number(fields, 1)
		}
	}
	return 0
}

// number returns a field as a number. It returns 0 when there is no such field or the field is not a number.
func number(fields []string, i int) uint64 {
	if i < 0 || i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseUint(fields[i], 10, 64)
	return n
}

// Tick is the time unit of /proc/stat, the same on all architectures (USER_HZ of include/uapi/asm-generic/param.h).
const Tick = 10 * time.Millisecond

// softirq returns the time that all CPUs have spent in softirqs, in which packets are received. It is the seventh number in the first line of
// /proc/stat (man 5 proc_stat).
func softirq(stat []byte) time.Duration {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	return time.Duration(number(strings.Fields(string(line)), 7)) * Tick
}

// Since returns the traffic between an earlier sample then and s. A counter that has decreased was reset. If devices do not count packets that XDP
// drops, the counts of rules are used instead. IP counts the packets of all devices. If IP counts more packets than the policy's devices have
// received, the received packets are divided into local and forwarded in the ratio of IP's counts.
func (s *Sample) Since(then *Sample) cost.Mix {
	mix := cost.Mix{
		Seconds: s.Time.Sub(then.Time).Seconds(), Local: gain(then.Local, s.Local), Forwarded: gain(then.Forwarded, s.Forwarded),
		Arrived: max(gain(then.Arrived, s.Arrived), gain(then.All, s.All)), Rules: map[string]uint64{},
	}
	for name, n := range s.Rules {
		if more := gain(then.Rules[name], n); more > 0 {
			mix.Rules[name] = more
		}
	}
	if all := mix.Local + mix.Forwarded; all > mix.Arrived {
		mix.Local = uint64(float64(mix.Local) * float64(mix.Arrived) / float64(all))
		mix.Forwarded = mix.Arrived - mix.Local
	}
	return mix
}

// gain returns the increase of a counter. After a reset the increase is the present value.
func gain(then, now uint64) uint64 {
	if now < then {
		return now
	}
	return now - then
}
