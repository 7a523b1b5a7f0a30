package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// NftHook is where a chain of nft runs.
type NftHook int

const (
	NftIngress NftHook = iota // before anything else that netfilter does
	NftRaw                    // before connection tracking
	NftInput                  // of what is for this host, after all else
)

// Script is input for nft: a table with a chain of these rules, and what else stands in the table.
func (h NftHook) Script(at *Site, rules, more string) string {
	family, hook := "inet", "hook prerouting priority raw"
	switch h {
	case NftIngress:
		family, hook = "netdev", fmt.Sprintf("hook ingress device %q priority 0", at.In.Name)
	case NftInput:
		hook = "hook input priority filter"
	}
	return fmt.Sprintf("table %s bench {\n%schain drops {\ntype filter %s; policy accept;\n%s}\n}\n", family, more, hook, rules)
}

// InstallNft has nft take a script.
func (b *Builder) InstallNft(ctx context.Context, at *Site, script string) error {
	_, _, err := RunTool(ctx, at.Server, strings.NewReader(script), "nft", "-f", "-")
	return err
}

// NftDrop is the rule that drops sources in the set of LoadNftSet.
func NftDrop(l *List) string { return report.Choice(l.V6, "ip6", "ip") + " saddr @listed drop\n" }

// LoadNftSet loads a list as a set of nft, with rules in a hook.
func LoadNftSet(ctx context.Context, at *Site, l *List, hook NftHook, rules string) (g Loaded, err error) {
	script, remove, err := TempFile("nft", func(w io.Writer) error { return nftSetScript(w, l, hook, at, rules) })
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

// nftSetScript is input for nft.
func nftSetScript(w io.Writer, l *List, hook NftHook, at *Site, rules string) error {
	before, after, _ := strings.Cut(hook.Script(at, rules, "set listed {\x00}\n"), "\x00")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "%s\ntype %s\n", before, report.Choice(l.V6, "ipv6_addr", "ipv4_addr"))
	if !l.Hosts {
		fmt.Fprintln(out, "flags interval")
	}
	if len(l.Prefixes) > 0 { // no elements are a mistake
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
