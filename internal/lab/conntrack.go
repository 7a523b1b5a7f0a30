// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conntrack is the state of a host's conntrack table.
type Conntrack struct {
	Entries int // number of entries in the host's table
	Max     int // maximum number of entries of any table: the machine's limit, which hosts of a lab cannot change

	// Number of packets that were dropped because the table was full, and of entries that were removed early to make space. Both count since the host
	// was made.
	Drops, EarlyDrops uint64
}

// Conntrack reads the state of the host's conntrack table.
func (h *Host) Conntrack() (c Conntrack, err error) {
	err = h.Do(func() (err error) {
		if c.Entries, err = readNumber("/proc/sys/net/netfilter/nf_conntrack_count"); err != nil {
			return err
		}
		if c.Max, err = readNumber("/proc/sys/net/netfilter/nf_conntrack_max"); err != nil {
			return err
		}
		stat, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if err != nil {
			return err
		}
		c.Drops, c.EarlyDrops, err = parseDrops(string(stat))
		return err
	})
	if err != nil {
		return c, fmt.Errorf("connection tracking of host %s: %w", h.Name, err)
	}
	return c, nil
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// parseDrops returns the sums of two columns of /proc/net/stat/nf_conntrack. The file has a header line, and a line of hexadecimal numbers for each
// CPU (kernel net/netfilter/nf_conntrack_standalone.c, ct_cpu_seq_show).
func parseDrops(stat string) (drops, early uint64, err error) {
	lines := strings.Split(strings.TrimSpace(stat), "\n")
	head := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, field := range strings.Fields(line) {
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil || i >= len(head) {
				return 0, 0, fmt.Errorf("line %q does not fit head %q", line, lines[0])
			}
			switch head[i] {
			case "drop":
				drops += n
			case "early_drop":
				early += n
			}
		}
	}
	return drops, early, nil
}

// Tracked returns the connections in the host's conntrack table.
func (h *Host) Tracked() (flows []*netlink.ConntrackFlow, err error) {
	err = h.Do(func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			of, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return err
			}
			flows = append(flows, of...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list connections of host %s: %w", h.Name, err)
	}
	return flows, nil
}

// FlushConntrack removes all entries from the host's conntrack table.
func (h *Host) FlushConntrack() error {
	err := h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		return fmt.Errorf("flush connection tracking of host %s: %w", h.Name, err)
	}
	return nil
}

// fillMost is the maximum number of connections that FillConntrack can make. Each has a source address of its own, from fillFrom on.
const fillMost = 1 << 22

// fillBatch is the number of connections that one system call adds. That is some 64 kB of messages.
const fillBatch = 400

// FillConntrack adds n connections to the host's conntrack table. No packets belong to these connections. They stand for connections of other
// clients. They are marked as seen in both directions (IPS_ASSURED), so the kernel does not remove them to make space.
func (h *Host) FillConntrack(n int) error {
	if n > fillMost {
		return fmt.Errorf("fill connection tracking of host %s: %d connections: at most %d", h.Name, n, fillMost)
	}
	err := h.Do(func() error {
		s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer s.Close()
		for first := 0; first < n; first += fillBatch {
			if err := addConnections(s, first, min(first+fillBatch, n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill connection tracking of host %s: %w", h.Name, err)
	}
	return nil
}

// addConnections adds the connections with the numbers from first to end-1.
func addConnections(s *nl.NetlinkSocket, first, end int) error {
	var batch []byte
	for i := first; i < end; i++ {
		flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
		if i == end-1 {
			flags |= unix.NLM_F_ACK
		}
		batch = append(batch, newConnection(i, flags).Serialize()...)
	}
	return transact(s, batch)
}

// fillTo is the destination address of all added connections. fillFrom is the first of their source addresses.
var (
	fillFrom = netip.MustParseAddr("10.128.0.0").As4()
	fillTo   = netip.MustParseAddr("192.0.2.1").As4()
)

// statusAssured is the status of a connection with packets in both directions (linux/netfilter/nf_conntrack_common.h).
const statusAssured = 1<<1 | 1<<2 | 1<<3 // IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED

// fillTimeout is the lifetime of an added entry in seconds. It is longer than any experiment.
const fillTimeout = 86400

// newConnection returns the request that adds UDP connection number i.
func newConnection(i, flags int) *nl.NetlinkRequest {
	from := fillFrom
	binary.BigEndian.PutUint32(from[:], binary.BigEndian.Uint32(from[:])+uint32(i))
	be32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	r := nl.NewNetlinkRequest(int(netlink.ConntrackTable)<<8|nl.IPCTNL_MSG_CT_NEW, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	r.AddData(tuple(nl.CTA_TUPLE_ORIG, from, fillTo, 4000, 443))
	r.AddData(tuple(nl.CTA_TUPLE_REPLY, fillTo, from, 443, 4000))
	r.AddData(nl.NewRtAttr(nl.CTA_STATUS, be32(statusAssured)))
	r.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, be32(fillTimeout)))
	return r
}

// tuple returns the netlink attribute for one direction of a UDP connection.
func tuple(kind int, from, to [4]byte, sport, dport uint16) *nl.RtAttr {
	be16 := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	all := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	ip := all.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(nl.CTA_IP_V4_SRC, from[:])
	ip.AddRtAttr(nl.CTA_IP_V4_DST, to[:])
	proto := all.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, be16(sport))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, be16(dport))
	return all
}
