package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// NftHook is the hook of a chain of nft.
type NftHook int

const (
	NftIngress NftHook = iota // before anything else that netfilter does
	NftRaw                    // before connection tracking
	NftInput                  // for packets to this host, after all else
)

// Script returns a script for nft, for a Guard. The script makes a table with a chain of these rules. The text more is added to the table.
func (h NftHook) Script(rules, more string) string {
	family, hook := "inet", "hook prerouting priority raw"
	switch h {
	case NftIngress:
		family, hook = "netdev", `hook ingress device "{in}" priority 0`
	case NftInput:
		hook = "hook input priority filter"
	}
	return fmt.Sprintf("table %s bench {\n%schain drops {\ntype filter %s; policy accept;\n%s}\n}\n", family, more, hook, rules)
}

// NftDrop returns the rule that drops sources in the set of LoadNftSet.
func NftDrop(l *List) string { return report.Choice(l.V6, "ip6", "ip") + " saddr @listed drop\n" }

// LoadNftSet loads a list as a set of nft, with rules in a hook.
func LoadNftSet(ctx context.Context, at *Site, l *List, hook NftHook, rules string) (g Loaded, err error) {
	script, remove, err := TempFile("nft", func(w io.Writer) error {
		return nftSetScript(w, l, strings.ReplaceAll(hook.Script(rules, nftSet), "{in}", at.In.Name))
	})
	if err != nil {
		return g, err
	}
	defer remove()
	before := KernelMemory()
	_, took, err := RunTool(ctx, at.Server, nil, "nft", "-f", script)
	if err != nil {
		return g, err
	}
	return Loaded{Subject: Subject{Site: at}, Seconds: report.Samples{took.Seconds()}}.Weighed(before, len(l.Prefixes), leastToWeigh), nil
}

// nftSet is the set in a script. nftSetScript writes its content.
const nftSet = "set listed {\x00}\n"

// nftSetScript writes a script with nftSet, and a list as the content of the set.
func nftSetScript(w io.Writer, l *List, script string) error {
	before, after, _ := strings.Cut(script, "\x00")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "%s\ntype %s\n", before, report.Choice(l.V6, "ipv6_addr", "ipv4_addr"))
	if !l.Hosts {
		fmt.Fprintln(out, "flags interval")
	}
	if len(l.Prefixes) > 0 { // nft rejects an empty list of elements
		fmt.Fprint(out, "elements = {")
		var entry []byte
		for _, p := range l.Prefixes {
			entry = append(l.AppendEntry(entry[:0], p), ",\n"...)
			out.Write(entry)
		}
		fmt.Fprintln(out, "}")
	}
	fmt.Fprint(out, after)
	return out.Flush()
}
