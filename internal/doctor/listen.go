// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// parseNetstat parses /proc/net/netstat or snmp. These files have pairs of lines: a line with names and a line with values.
func parseNetstat(text string) (map[string]uint64, error) {
	values := map[string]uint64{}
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || len(names) == 0 || names[0] != fields[0] {
			names = fields
			continue
		}
		for i, field := range fields[1:min(len(fields), len(names))] {
			n, err := strconv.ParseInt(field, 10, 64) // some values are signed
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", names[0], names[i+1], err)
			}
			values[names[i+1]] = uint64(n)
		}
		names = nil
	}
	return values, nil
}

func readNetstat(h *host) (map[string]uint64, error) {
	text, err := h.read(netFile("netstat"))
	if err != nil {
		return nil, err
	}
	return parseNetstat(text)
}

// listenQueues examines whether connections are lost because no program accepts them in time, or because of a SYN flood.
func listenQueues(ctx context.Context, h *host) []Finding {
	before, after, err := twice(ctx, h, func() (map[string]uint64, error) { return readNetstat(h) })
	if err != nil {
		return []Finding{unseen("listen-drops", err)}
	}
	serve, err := sockets.Serving()
	somaxconn, backlog := queueLimits(h)
	found := []Finding{listenDrops(before, after, somaxconn), synQueue(before, after, backlog, serve), asymmetric(before, after)}
	if err != nil {
		return append(found, unseen("listen-queue", err))
	}
	return append(found, fullQueues(serve))
}

// queueLimits reads the settings that limit the queues of listening sockets. A setting that cannot be read is 0.
func queueLimits(h *host) (somaxconn, synBacklog uint64) {
	somaxconn, _ = h.number(sysctlFile("net", "core", "somaxconn"))
	synBacklog, _ = h.number(sysctlFile("net", "ipv4", "tcp_max_syn_backlog"))
	return somaxconn, synBacklog
}

// busyQueue is a queue length for a busy server: the default of net.core.somaxconn since Linux 5.4.
const busyQueue = 4096

func listenDrops(before, after map[string]uint64, somaxconn uint64) Finding {
	overflows := changed(before["ListenOverflows"], after["ListenOverflows"])
	drops := changed(before["ListenDrops"], after["ListenDrops"])
	f := Finding{
		ID: "listen-drops", Severity: drops.plus(overflows).severity(Problem),
		Evidence: fmt.Sprintf("ListenOverflows %s; ListenDrops %s (/proc/net/netstat); net.core.somaxconn %d",
			overflows, drops, somaxconn),
		Numbers: map[string]uint64{"overflows": overflows.total, "drops": drops.total, "new": drops.new, "somaxconn": somaxconn},
		Cost:    "connections whose server did not accept them in time: the client waits 1 s, then tries again",
	}
	switch {
	case f.Severity == OK:
		return f.healthy()
	case somaxconn > 0 && somaxconn < busyQueue:
		return f.command(fmt.Sprintf("sysctl -w net.core.somaxconn=%d", busyQueue))
	}
	return f.advice("the server's own backlog (listen in nginx, ListenBacklog in Apache) and its number of workers; " +
		"in a flood of full connections, a rule with `over`")
}

// synQueue returns a finding about the effects of a SYN flood: cookies that were sent, and requests that were dropped without a cookie. backlog is
// net.ipv4.tcp_max_syn_backlog, 0 if it is not known. `serve` are the serving sockets.
func synQueue(before, after map[string]uint64, backlog uint64, serve []sockets.Socket) Finding {
	cookies := changed(before["TCPReqQFullDoCookies"], after["TCPReqQFullDoCookies"])
	dropped := changed(before["TCPReqQFullDrop"], after["TCPReqQFullDrop"])
	f := Finding{
		ID: "syn-queue", Severity: cookies.severity(Warning),
		Evidence: fmt.Sprintf("the queue of half-open connections was full: cookies sent %s, dropped %s (TCPReqQFullDoCookies and TCPReqQFullDrop, /proc/net/netstat)",
			cookies, dropped),
		Numbers: map[string]uint64{"cookies": cookies.total, "dropped": dropped.total, "new": cookies.new + dropped.new},
		Cost:    "a SYN flood, or too short a queue: each SYN costs the kernel a cookie on the listening socket",
	}
	if dropped.total > 0 {
		f.Severity = dropped.severity(Problem)
		f.Cost = "connections are refused while the queue is full, since net.ipv4.tcp_syncookies is 0"
		return f.command("sysctl -w net.ipv4.tcp_syncookies=1")
	}
	if f.Severity == OK {
		return f.healthy()
	}
	if backlog > 0 && backlog < busyQueue {
		return f.command(fmt.Sprintf("sysctl -w net.ipv4.tcp_max_syn_backlog=%d", busyQueue))
	}
	return f.advice("`syn: protect` for the services that are flooded, of " + strings.Join(openPorts(serve), ", "))
}

// openPorts returns up to eight TCP ports that other hosts can reach. If there are none, it returns the ports of web servers.
func openPorts(serve []sockets.Socket) (ports []string) {
	for _, s := range serve {
		port := s.String()
		if s.Proto == unix.IPPROTO_TCP && !s.Addr.IsLoopback() && !slices.Contains(ports, port) && len(ports) < 8 {
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		return []string{"tcp/80", "tcp/443"}
	}
	return ports
}

// fullQueues finds sockets whose queue of connections is full now.
func fullQueues(serve []sockets.Socket) Finding {
	f := Finding{ID: "listen-queue", Severity: Problem, Numbers: map[string]uint64{},
		Cost: "new connections to them are dropped until the server accepts some"}
	var full []string
	for _, s := range serve {
		if s.Backlog > 0 && s.Queued >= s.Backlog {
			full = append(full, fmt.Sprintf("%s holds %s of %s", s, wording.Count(uint64(s.Queued)), wording.Count(uint64(s.Backlog))))
		}
	}
	f.Numbers["full"] = uint64(len(full))
	if len(full) == 0 {
		f.Evidence = fmt.Sprintf("no queue of %d sockets that serve is full (from sock_diag)", len(serve))
		return f.healthy()
	}
	f.Evidence = "queues that are full: " + strings.Join(full[:min(len(full), 8)], ", ") + " (from sock_diag)"
	return f.advice("the server is too slow or has stopped: look at it first; then its backlog")
}
