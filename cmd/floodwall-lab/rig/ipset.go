package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// RestoreIpset restores a list as a set of ipset.
func RestoreIpset(ctx context.Context, at *Site, l *List) (g Loaded, err error) {
	script, remove, err := TempFile("ipset", func(w io.Writer) error { return ipsetScript(w, l) })
	if err != nil {
		return g, err
	}
	defer remove()
	_, took, err := RunTool(ctx, at.Server, nil, "ipset", "restore", "-file", script)
	if err != nil {
		return g, err
	}
	about, _, err := RunTool(ctx, at.Server, nil, "ipset", "list", "-t", "listed")
	if err != nil {
		return g, err
	}
	return Loaded{Subject: Subject{Site: at}, Seconds: report.Samples{took.Seconds()}, Bytes: sizeInMemory(about)}, nil
}

// ipsetScript writes input for ipset restore.
func ipsetScript(w io.Writer, l *List) error {
	kind := report.Choice(l.Hosts, "hash:ip", "hash:net")
	family := report.Choice(l.V6, "inet6", "inet")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "create listed %s family %s maxelem %d\n", kind, family, max(len(l.Prefixes), 65536))
	var line []byte
	for _, p := range l.Prefixes {
		line = append(l.AppendEntry(append(line[:0], "add listed "...), p), '\n')
		out.Write(line)
	}
	return out.Flush()
}

// sizeInMemory reads the memory of a set from the output of `ipset list -t`, in bytes; 0 if the output does not contain it.
func sizeInMemory(about string) float64 {
	for line := range strings.Lines(about) {
		if text, ok := strings.CutPrefix(line, "Size in memory: "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return n
		}
	}
	return 0
}

// MatchListed restricts a rule of iptables to sources in the set of RestoreIpset.
const MatchListed = "-m set --match-set listed src"
