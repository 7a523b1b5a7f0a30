// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// noService are protocols whose raw sockets do not indicate a service. ping and traceroute open sockets of most of them. Sockets of the protocols 0
// and 255 only send.
var noService = []uint8{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW}

// RawProtocols returns the IANA numbers of protocols, such as VRRP and OSPF, for which this network namespace has raw sockets that receive from other
// hosts. It reads /proc/net/raw and raw6. These files have the protocol in the place of the local port.
func RawProtocols() (list []uint8, err error) {
	for _, name := range []string{"raw", "raw6"} {
		file, err := os.Open(ProcFile(name))
		if errors.Is(err, fs.ErrNotExist) { // the host has no IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("raw sockets: %w", err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if n, ok := rawProtocol(lines.Text()); ok && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
		file.Close()
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("raw sockets: %w", err)
		}
	}
	slices.Sort(list)
	return list, nil
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
