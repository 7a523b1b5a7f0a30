package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// restoreIpset restores a list as a set of ipset.
func restoreIpset(ctx context.Context, at *site, l *list) (g loaded, err error) {
	script, remove, err := tempFile("ipset", func(w io.Writer) error { return ipsetScript(w, l) })
	if err != nil {
		return g, err
	}
	defer remove()
	_, took, err := runTool(ctx, at.server, nil, "ipset", "restore", "-file", script)
	if err != nil {
		return g, err
	}
	about, _, err := runTool(ctx, at.server, nil, "ipset", "list", "-t", "listed")
	if err != nil {
		return g, err
	}
	return loaded{subject: subject{site: at}, seconds: series{took.Seconds()}, octets: sizeInMemory(about)}, nil
}

// ipsetScript is input for ipset restore.
func ipsetScript(w io.Writer, l *list) error {
	kind := choice(l.hosts, "hash:ip", "hash:net")
	family := choice(l.v6, "inet6", "inet")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "create listed %s family %s maxelem %d\n", kind, family, max(len(l.prefixes), 65536))
	var line []byte
	for _, p := range l.prefixes {
		line = append(l.appendEntry(append(line[:0], "add listed "...), p), '\n')
		out.Write(line)
	}
	return out.Flush()
}

// sizeInMemory reads what `ipset list -t` says of a set's memory; 0 when it does not.
func sizeInMemory(about string) float64 {
	for line := range strings.Lines(about) {
		if text, ok := strings.CutPrefix(line, "Size in memory: "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return n
		}
	}
	return 0
}

// matchListed has a rule of iptables be for sources in the set of restoreIpset.
const matchListed = "-m set --match-set listed src"
