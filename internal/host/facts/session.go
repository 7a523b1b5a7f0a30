// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Session is a connection over which the operator enters commands.
type Session struct{ Client, Server netip.AddrPort }

// Clients returns the addresses of the sessions' clients, as prefixes.
func Clients(sessions []Session) (list []netip.Prefix) {
	for _, s := range sessions {
		list = append(list, netip.PrefixFrom(s.Client.Addr(), s.Client.Addr().BitLen()))
	}
	return list
}

// Sessions returns the SSH sessions of the person who runs this process, from sshd's variable SSH_CONNECTION. sudo and su drop the variable, so
// Sessions also checks the parent processes. If none has the variable, it returns the connection of the nearest SSH server among them.
func Sessions() []Session {
	if s, ok := parseSession(os.Getenv("SSH_CONNECTION")); ok {
		return present(s, os.Getpid(), mostHops)
	}
	list, _ := sessionsOf(os.Getppid(), mostHops)
	return list
}

// SessionsOf returns the SSH sessions of the person who runs a process. `known` is false if this process lacks the rights to read the other process
// and has found no session.
func SessionsOf(pid int) (list []Session, known bool) { return sessionsOf(pid, mostHops) }

// mostHops limits how many sessions through this host itself are followed.
const mostHops = 8

func sessionsOf(pid, hops int) (list []Session, known bool) {
	known = pid > 1
	for of := pid; of > 1; of = parent(of) {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/environ", of)); err != nil {
			known = false
		} else {
			f.Close()
		}
		if s, ok := parseSession(environment(of, "SSH_CONNECTION")); ok {
			return present(s, of, hops), true
		}
	}
	if s, ok := ancestorServer(pid); ok {
		return []Session{s}, true
	}
	return nil, known
}

// ancestorServer returns the connection of the nearest SSH server among a process and its ancestors.
func ancestorServer(pid int) (Session, bool) {
	for ; pid > 1; pid = parent(pid) {
		if s, ok := accepted(pid); ok {
			return s, true
		}
	}
	return Session{}, false
}

// present returns the sessions that exist now, for the session that a process has in its environment. A client on this host, such as ssh or an SSH
// server that forwards a port, leads to the session of the person who runs it. If the connection has ended, or if its SSH server is no ancestor of the
// process, the process may belong to a terminal multiplexer that is attached again from elsewhere. Then the session of each login may be the present
// one. s remains one of them: mosh and SSH servers outside of the kernel's sockets have no such connection.
func present(s Session, pid, hops int) (list []Session) {
	holder, open := sockets.Holder(s.Server, s.Client)
	if !open || holder != 0 && !descends(pid, holder) {
		list = logins()
		if own, ok := ancestorServer(pid); ok && !slices.Contains(list, own) {
			list = append(list, own)
		}
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
		return list
	}
	if client, here := sockets.Holder(s.Client, s.Server); here && hops > 0 {
		if list, _ = sessionsOf(client, hops-1); list != nil {
			return list
		}
	}
	return []Session{s}
}

// logins returns the open connections that processes of this host have in their environment. An SSH server sets this variable after a login only.
func logins() (list []Session) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := parseSession(environment(pid, "SSH_CONNECTION"))
		if !ok || slices.Contains(list, s) {
			continue
		}
		if _, open := sockets.Holder(s.Server, s.Client); open {
			list = append(list, s)
		}
	}
	return list
}

// descends reports whether a process is another one or descends from it.
func descends(pid, from int) bool {
	for ; pid > 1; pid = parent(pid) {
		if pid == from {
			return true
		}
	}
	return false
}

// parseSession parses the text "CLIENT PORT SERVER PORT" of SSH_CONNECTION.
func parseSession(text string) (Session, bool) {
	f := strings.Fields(text)
	if len(f) != 4 {
		return Session{}, false
	}
	client, cerr := endpoint(f[0], f[1])
	server, serr := endpoint(f[2], f[3])
	return Session{client, server}, cerr == nil && serr == nil
}

func endpoint(addr, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(n)), err
}

func environment(pid int, name string) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for _, entry := range bytes.Split(env, []byte{0}) {
		if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return value
		}
	}
	return ""
}

// parent returns the ID of the parent of a process. It returns 0 when the parent is unknown.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name of the command is in parentheses and may contain any characters.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
