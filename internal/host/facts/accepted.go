// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Columns of /proc/net/tcp and tcp6, and two values of the state column (proc_pid_net(5)).
const (
	columnLocal, columnRemote, columnState, columnInode = 1, 2, 3, 9

	established, listening = "01", "0A"
)

// accepted returns the client connection of a process that is an SSH server. It is used for sessions without sshd's environment variables, such as
// `ssh HOST env -i floodwall …`.
func accepted(pid int) (Session, bool) {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil || !strings.HasPrefix(string(name), "sshd") && !strings.HasPrefix(string(name), "dropbear") {
		return Session{}, false
	}
	open := sockets.Inodes(pid)
	served, found := map[uint16]bool{}, []Session{}
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(sockets.ProcFile(file))
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) <= columnInode || f[columnState] != established && f[columnState] != listening {
				continue
			}
			local, remote := hexEndpoint(f[columnLocal]), hexEndpoint(f[columnRemote])
			if f[columnState] == listening {
				served[local.Port()] = true
			} else if inode, err := strconv.ParseUint(f[columnInode], 10, 32); err == nil && slices.Contains(open, uint32(inode)) {
				found = append(found, Session{Client: remote, Server: local})
			}
		}
	}
	for _, s := range found { // the other ones are connections that the session forwards
		if served[s.Server.Port()] {
			return s, true
		}
	}
	return Session{}, false
}

// hexEndpoint parses an address and a port in the kernel's format. The address consists of 32-bit words in the byte order of this host.
func hexEndpoint(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	bytes, err := hex.DecodeString(address)
	n, _ := strconv.ParseUint(port, 16, 16)
	if err != nil || len(bytes)%4 != 0 {
		return netip.AddrPort{}
	}
	for word := range slices.Chunk(bytes, 4) {
		slices.Reverse(word) // all machines that Floodwall supports are little endian
	}
	a, _ := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(a.Unmap(), uint16(n))
}
