// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
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

// Sessions returns the SSH session of this process, from sshd's variable SSH_CONNECTION. sudo and su drop the variable, so Sessions also checks the
// parent processes. If none has the variable, it returns the connection of the nearest SSH server among them.
func Sessions() []Session {
	if s, ok := parseSession(os.Getenv("SSH_CONNECTION")); ok {
		return []Session{s}
	}
	for pid := os.Getppid(); pid > 1; pid = parent(pid) {
		if s, ok := parseSession(environment(pid, "SSH_CONNECTION")); ok {
			return []Session{s}
		}
	}
	return acceptedAbove(os.Getppid())
}

// acceptedAbove returns the connection of the nearest SSH server among a process and its ancestors.
func acceptedAbove(pid int) []Session {
	for ; pid > 1; pid = parent(pid) {
		if s, ok := accepted(pid); ok {
			return []Session{s}
		}
	}
	return nil
}

// SessionsOf returns the SSH session of a process. `known` is false if this process lacks the rights to read the other process and has found no
// session.
func SessionsOf(pid int) (list []Session, known bool) {
	known = pid > 1
	defer func(first int) {
		if list == nil {
			list = acceptedAbove(first)
			known = known || list != nil
		}
	}(pid)
	for ; pid > 1; pid = parent(pid) {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid)); err != nil {
			known = false
		} else {
			f.Close()
		}
		if s, ok := parseSession(environment(pid, "SSH_CONNECTION")); ok {
			return []Session{s}, true
		}
	}
	return nil, known
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
