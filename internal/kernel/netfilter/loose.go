package netfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// looseFile says whether conntrack takes a packet from the middle of a TCP connection that it does not know for one of a
// connection. While SYNPROXY stands in front of a service it must not: the packet that brings a cookie back would be
// taken for that, and go on to a server that knows nothing of it.
const looseFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// Loose is what looseFile says: 0 where conntrack is strict, nil when there is no conntrack.
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

// setLoose changes it.
func setLoose(n int) error {
	if err := os.WriteFile(looseFile, []byte(strconv.Itoa(n)), 0o644); err != nil {
		return fmt.Errorf("setting whether conntrack is strict: %w", err)
	}
	return nil
}
