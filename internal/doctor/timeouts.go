// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// timeout is a timeout of connection tracking: the time that an entry stays without a packet, in seconds.
type timeout struct {
	name string // the part after nf_conntrack_
	most uint64 // the usual value; a longer one is too long on a host with conntrack
	want uint64 // a value that suffices while a flood fills the table
	why  string
}

// timeouts are sorted by their harm. The field want for an established connection is the minimum that RFC 5382 (REQ-5) allows. It is more than the
// two hours after which the kernel sends a keepalive. The kernel repeats a SYN-ACK until 31 s after the first one, and a FIN in the same way.
var timeouts = []timeout{
	{"tcp_timeout_established", 86400, 7440, "an entry whose peer has gone without a FIN"},
	{"tcp_timeout_syn_recv", 60, 30, "a SYN that was answered and never acknowledged"},
	{"tcp_timeout_syn_sent", 120, 30, "a SYN that nobody answers"},
	{"tcp_timeout_max_retrans", 300, 300, "a connection that only repeats itself"},
	{"tcp_timeout_unacknowledged", 300, 300, "data that nobody acknowledges"},
	{"tcp_timeout_fin_wait", 120, 60, "a FIN that is not answered"},
	{"tcp_timeout_close_wait", 60, 60, "a connection that one end has closed"},
	{"tcp_timeout_last_ack", 30, 30, "the last ACK"},
	{"tcp_timeout_time_wait", 120, 60, "a connection that has ended"},
	{"udp_timeout", 30, 30, "a datagram without an answer"},
	{"udp_timeout_stream", 180, 120, "datagrams in both directions"},
	{"icmp_timeout", 30, 30, "a ping"},
	{"icmpv6_timeout", 30, 30, "a ping of IPv6"},
	{"generic_timeout", 600, 120, "another protocol"},
}

// full is the percentage of used entries from which the shorter timeouts are recommended.
const full = 50

// conntrackTimeouts returns a finding about the time that entries stay after their last packet. A flood uses as many entries as it has packets in
// this time.
func conntrackTimeouts(_ context.Context, h *host) []Finding {
	const id = "conntrack-timeouts"
	t, err := readTracked(h)
	if errors.Is(err, errNoConntrack) {
		return nil
	}
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	f := Finding{ID: id, Severity: Note, Numbers: map[string]uint64{"count": t.count, "max": t.max}}
	filled := t.max > 0 && percent(t.count, t.max) >= full
	var is, costs, set []string
	for _, o := range timeouts {
		name := "net.netfilter.nf_conntrack_" + o.name
		value, err := h.number(sysctlFile("net", "netfilter", "nf_conntrack_"+o.name))
		if err != nil || value <= o.want || !filled && value <= o.most { // a kernel may not have every timeout
			continue
		}
		f.Numbers[o.name] = value
		is = append(is, fmt.Sprintf("%s is %s s", name, wording.Count(value)))
		costs = append(costs, o.why)
		set = append(set, fmt.Sprintf("%s=%d", name, o.want))
	}
	if set == nil || t.count == 0 {
		f.Evidence = "no timeout of connection tracking is too long, or no connection is tracked (net.netfilter.nf_conntrack_*_timeout*)"
		return []Finding{f.healthy()}
	}
	f.Evidence = fmt.Sprintf("%s, with %s of %s entries in the table (/proc/sys)", strings.Join(is, ", "), wording.Count(t.count), wording.Count(t.max))
	f.Cost = "so long stays an entry without a packet: " + strings.Join(costs, "; ") + ". A flood of R packets a second, each of another connection, has R times as many " +
		"entries as these seconds, and they stay so long when it is over. Caution: a tracked connection that is silent for longer is forgotten, and a rule that asks for " +
		"`established` cuts it; the kernel's keepalive asks after two hours"
	if filled {
		f.Severity = Warning
	}
	return []Finding{f.command("sysctl -w " + strings.Join(set, " "))}
}
