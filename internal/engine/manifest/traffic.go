// This file counts the packets that come to a network namespace, and which ways they go. Rules are placed by it.

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

// Sample is what this network namespace has counted of packets, up to a moment.
type Sample struct {
	Time      time.Time         `json:"time"`
	Arrived   uint64            `json:"arrived"`   // at the policy's devices
	Local     uint64            `json:"local"`     // that IP has delivered, without those of the host to itself
	Forwarded uint64            `json:"forwarded"` // by IP
	Softirq   time.Duration     `json:"softirq"`   // spent by all CPUs of the machine
	Rules     map[string]uint64 `json:"rules"`     // decided by each, by name; those with none are left out
	All       uint64            `json:"all"`       // decided by any, by a check or by the default
}

// CountPackets counts the packets of devices, and those of IP. Rules and All are for the caller.
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

// arrived is how many packets a device has received.
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

// internet reads what IP has counted in this namespace. What the kernel was built without has counted nothing.
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

// ipCounter finds a counter in /proc/net/snmp, where a line of names is followed by one of values.
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

// ip6Counter finds a counter in /proc/net/snmp6, which has one a line.
func ip6Counter(text []byte, name string) uint64 {
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			return number(fields, 1)
		}
	}
	return 0
}

// number is a field that is a number, 0 when there is none.
func number(fields []string, i int) uint64 {
	if i < 0 || i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseUint(fields[i], 10, 64)
	return n
}

// Tick is the unit of /proc/stat, the same on all architectures (USER_HZ of include/uapi/asm-generic/param.h).
const Tick = 10 * time.Millisecond

// softirq is the time in softirqs, where packets are received, of all CPUs: the seventh number of the first line of
// /proc/stat (man 5 proc_stat).
func softirq(stat []byte) time.Duration {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	return time.Duration(number(strings.Fields(string(line)), 7)) * Tick
}

// Since is what was observed from an earlier sample to this one. Counters that went back have started again. Where devices
// do not count what XDP drops, rules do. IP counts the packets of all devices: when there are more of them than have arrived
// at the policy's, those of the policy's are taken to be shared out alike.
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

// gain is what a counter has counted more.
func gain(then, now uint64) uint64 {
	if now < then {
		return now
	}
	return now - then
}
