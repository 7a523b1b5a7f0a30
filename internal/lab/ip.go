package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// IPCounts is what became of IPv4 packets at a host since it was made.
type IPCounts struct{ Delivered, Forwarded uint64 }

// IPCounts reads the counters.
func (h *Host) IPCounts() (c IPCounts, err error) {
	err = h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		c, err = parseIP(string(text))
		return err
	})
	if err != nil {
		return c, fmt.Errorf("IP counters of host %s: %w", h.Name, err)
	}
	return c, nil
}

// parseIP reads /proc/net/snmp: of each protocol a line of names and one of numbers (RFC 4293; kernel net/ipv4/proc.c).
func parseIP(snmp string) (c IPCounts, err error) {
	var names []string
	for line := range strings.Lines(snmp) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, field := range fields[:min(len(fields), len(names))] {
			to := map[string]*uint64{"InDelivers": &c.Delivered, "ForwDatagrams": &c.Forwarded}[names[i]]
			if to == nil {
				continue
			}
			if *to, err = strconv.ParseUint(field, 10, 64); err != nil {
				return c, err
			}
		}
		return c, nil
	}
	return c, fmt.Errorf("no counters of IP among %d bytes", len(snmp))
}
