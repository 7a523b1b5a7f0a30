// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// noService are protocols whose raw sockets do not indicate a service. ping and traceroute open sockets of most of them. Sockets of the protocols 0
// and 255 only send.
var noService = []uint8{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW}

// RawProtocols returns the IANA numbers of protocols without TCP or UDP ports, such as VRRP, OSPF and SCTP, for which this network namespace has
// sockets that receive from other hosts. It reads /proc/net/raw and raw6, which have the protocol in the place of the local port, and sctp/eps.
func RawProtocols() (list []uint8, err error) {
	for name, read := range map[string]func(line string) (uint8, bool){"raw": rawProtocol, "raw6": rawProtocol, "sctp/eps": sctpListener} {
		text, err := os.ReadFile(ProcFile(name))
		if errors.Is(err, fs.ErrNotExist) { // the host has no IPv6, or no SCTP
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("raw sockets: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := read(line); ok && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// sctpListener returns the protocol SCTP for a line of /proc/net/sctp/eps of a socket that listens for other hosts. The columns are
// ENDPT, SOCK, STY, SST (the state), HBKT, LPORT, UID, INODE and LADDRS (sctp_eps_seq_show of net/sctp/proc.c).
func sctpListener(line string) (uint8, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[3] != strconv.Itoa(tcpListen) {
		return 0, false
	}
	return unix.IPPROTO_SCTP, slices.ContainsFunc(words[8:], func(w string) bool {
		a, err := netip.ParseAddr(w)
		return err == nil && !a.IsLoopback()
	})
}

// rawProtocol returns the protocol in a line of /proc/net/raw. It returns false if the socket does not indicate a service.
func rawProtocol(line string) (uint8, bool) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return 0, false
	}
	address, number, ok := strings.Cut(words[1], ":")
	n, err := strconv.ParseUint(number, 16, 16)
	own := address == "0100007F" || address == "00000000000000000000000001000000" // loopback; each word of 32 bits is in the host's byte order
	if !ok || err != nil || n > 255 || own || slices.Contains(noService, uint8(n)) {
		return 0, false
	}
	return uint8(n), true
}
