// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// setting is a kernel setting that has an effect during a flood.
type setting struct {
	id    string
	path  []string // below /proc/sys
	judge func(value uint64) (Severity, string)
	want  uint64
}

func (s setting) name() string {
	name := ""
	for _, p := range s.path {
		name += "." + p
	}
	return name[1:]
}

// synackRetries is a sufficient number of retries of a SYN-ACK. With it the kernel keeps a half-open connection until 15 s after the SYN. With the
// default of five retries it keeps the connection for 63 s, which the talk "Accelerating synproxy with XDP" (netdev 0x15) criticises.
const synackRetries = 3

var settings = []setting{
	{"tcp-syncookies", []string{"net", "ipv4", "tcp_syncookies"}, func(v uint64) (Severity, string) {
		switch v {
		case 0:
			return Warning, "a SYN flood of a few hundred packets/s fills the queue of a socket, and nobody else gets in"
		case 2:
			return Note, "each SYN is answered by a cookie, also without a flood: options are lost where timestamps are off"
		}
		return OK, ""
	}, 1},
	{"tcp-timestamps", []string{"net", "ipv4", "tcp_timestamps"}, func(v uint64) (Severity, string) {
		if v == 0 {
			return Note, "cookies keep window scaling and SACK in the timestamp: connections that SYN protection lets in are slow without"
		}
		return OK, ""
	}, 1},
	{"tcp-synack-retries", []string{"net", "ipv4", "tcp_synack_retries"}, func(v uint64) (Severity, string) {
		if v > synackRetries {
			return Note, fmt.Sprintf("a SYN whose sender never answers has its place in the queue for %d s, and gets %d answers: forged SYNs fill it for longer", 1<<min(v+1, 30)-1, v+1)
		}
		return OK, ""
	}, synackRetries},
	{"tcp-syn-backlog", []string{"net", "ipv4", "tcp_max_syn_backlog"}, func(v uint64) (Severity, string) {
		if v < 256 {
			return Note, "so few half-open connections are kept for a socket before cookies begin"
		}
		return OK, ""
	}, busyQueue},
	{"netdev-max-backlog", []string{"net", "core", "netdev_max_backlog"}, func(v uint64) (Severity, string) {
		if v < 1000 {
			return Note, "so few packets wait for a CPU that others hand packets to (RPS, devices without NAPI) before they are dropped"
		}
		return OK, ""
	}, busyQueue},
	{"somaxconn", []string{"net", "core", "somaxconn"}, func(v uint64) (Severity, string) {
		if v < 1024 {
			return Note, "so few connections wait for a server to accept them, whatever it asks for"
		}
		return OK, ""
	}, busyQueue},
}

func tcpSettings(_ context.Context, h *host) (found []Finding) {
	for _, s := range settings {
		value, err := h.number(sysctlFile(s.path...))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			found = append(found, unseen(s.id, err))
			continue
		}
		f := Finding{
			ID: s.id, Evidence: fmt.Sprintf("%s is %d (/proc/sys)", s.name(), value), Numbers: map[string]uint64{"value": value},
		}
		if f.Severity, f.Cost = s.judge(value); f.Severity != OK {
			f = f.command(fmt.Sprintf("sysctl -w %s=%d", s.name(), s.want))
		}
		found = append(found, f)
	}
	return found
}
