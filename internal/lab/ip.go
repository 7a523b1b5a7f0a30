// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// IPCounts contains the counts of IPv4 packets at a host since it was made.
type IPCounts struct {
	Received, Bytes      uint64 // packets, and their bytes with the headers of IP; segments that the sender or GRO has joined are one packet
	Delivered, Forwarded uint64
	UDP                  uint64 // datagrams to this host, whether or not a socket has read them
}

// Segments returns how many segments of a full Ethernet frame an average packet since an earlier count has.
func (c IPCounts) Segments(before IPCounts) float64 {
	return float64(c.Bytes-before.Bytes) / float64(c.Received-before.Received) / 1500
}

// IPCounts reads the counters.
func (h *Host) IPCounts() (c IPCounts, err error) {
	err = h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		more, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		c, err = ParseIP(string(text) + string(more))
		return err
	})
	if err != nil {
		return c, fmt.Errorf("IP counters of host %s: %w", h.Name, err)
	}
	return c, nil
}

// ParseIP reads the counters from the texts of /proc/net/snmp (RFC 4293, RFC 4113) and netstat. A datagram counts in one of InDatagrams, NoPorts and
// InErrors.
func ParseIP(text string) (c IPCounts, err error) {
	counters, err := parseSNMP(text)
	if err != nil {
		return c, err
	}
	for _, name := range []string{"Ip InDelivers", "Ip ForwDatagrams", "Udp InDatagrams", "Udp NoPorts", "Udp InErrors", "Ip InReceives", "IpExt InOctets"} {
		if _, ok := counters[name]; !ok {
			return c, fmt.Errorf("no counter %s among %d bytes", name, len(text))
		}
	}
	c.Delivered, c.Forwarded = counters["Ip InDelivers"], counters["Ip ForwDatagrams"]
	c.UDP = counters["Udp InDatagrams"] + counters["Udp NoPorts"] + counters["Udp InErrors"]
	c.Received, c.Bytes = counters["Ip InReceives"], counters["IpExt InOctets"]
	return c, nil
}

// parseSNMP parses /proc/net/snmp and netstat: for each protocol, a line of names and one of numbers (kernel net/ipv4/proc.c). The keys are a protocol and a
// name.
func parseSNMP(text string) (map[string]uint64, error) {
	counters, names := map[string]uint64{}, map[string][]string{}
	for line := range strings.Lines(text) {
		protocol, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !ok || names[protocol] == nil {
			names[protocol] = fields
			continue
		}
		for i, field := range fields[:min(len(fields), len(names[protocol]))] {
			if strings.HasPrefix(field, "-") { // a setting without a value, for example MaxConn
				continue
			}
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return nil, err
			}
			counters[protocol+" "+names[protocol][i]] = n
		}
	}
	return counters, nil
}
