// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
)

func TestTimeoutFiles(t *testing.T) {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	host := func(count, established, synSent string) map[string]string {
		return map[string]string{dir + "count": count, dir + "max": "1000", dir + "buckets": "1000", dir + "tcp_timeout_established": established, dir + "tcp_timeout_syn_sent": synSent}
	}
	const name = "net.netfilter.nf_conntrack_tcp_timeout_"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"the kernel's", host("10", "432000", "120"), "note conntrack-timeouts: sysctl -w " + name + "established=7440"},
		{"nothing is tracked", host("0", "432000", "120"), "ok conntrack-timeouts:"},
		{"a day", host("10", "86400", "120"), "ok conntrack-timeouts:"},
		{"a day, half full", host("500", "86400", "120"), "warning conntrack-timeouts: sysctl -w " + name + "established=7440 " + name + "syn_sent=30"},
		{"short, half full", host("500", "7440", "30"), "ok conntrack-timeouts:"},
	} {
		t.Run(tt.name, func(t *testing.T) { same(t, conntrackTimeouts(t.Context(), captured(tt.files)), tt.want) })
	}
	same(t, conntrackTimeouts(t.Context(), captured(nil)))
}

// TestTimeouts judges the kernel's timeouts while a few connections are tracked.
func TestTimeouts(t *testing.T) {
	if !furnished(t, "nft", "sysctl") {
		return
	}
	expect(t, "conntrack-timeouts", OK, "no connection is tracked")
	sh(t, "nft 'add table inet t; add chain inet t c { type filter hook prerouting priority 0; }; add rule inet t c ct state new counter'")
	sh(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=432000 net.netfilter.nf_conntrack_udp_timeout=600")
	w := newWire(t)
	w.flows(t, 10)
	f := expect(t, "conntrack-timeouts", Note, "tcp_timeout_established is 432,000 s, net.netfilter.nf_conntrack_udp_timeout is 600 s, with ")
	if f.Numbers["tcp_timeout_established"] != 432000 || f.Numbers["count"] == 0 {
		t.Errorf("%+v", f)
	}
	w.flows(t, 10)
	cured(t, f)
}
