// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// looseFile says whether conntrack treats a packet from the middle of an unknown TCP connection as part of a connection. While SYNPROXY protects a
// service, conntrack must not. Otherwise conntrack would accept the packet that returns a cookie, and the packet would reach a server that does not
// know the connection.
const looseFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// Loose returns the value of looseFile: 0 if conntrack is strict. It returns nil when there is no conntrack.
func Loose() (*int, error) {
	text, err := os.ReadFile(looseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("whether conntrack is strict: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", looseFile, err)
	}
	return &n, nil
}

// setLoose writes looseFile.
func setLoose(n int) error {
	if err := os.WriteFile(looseFile, []byte(strconv.Itoa(n)), 0o644); err != nil {
		return fmt.Errorf("setting whether conntrack is strict: %w", err)
	}
	return nil
}
