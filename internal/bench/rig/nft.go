package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// nftHook is where a chain of nft runs.
type nftHook int

const (
	nftIngress nftHook = iota // before anything else that netfilter does
	nftRaw                    // before connection tracking
	nftInput                  // of what is for this host, after all else
)

// script is input for nft: a table with a chain of these rules, and what else stands in the table.
func (h nftHook) script(at *site, rules, more string) string {
	family, hook := "inet", "hook prerouting priority raw"
	switch h {
	case nftIngress:
		family, hook = "netdev", fmt.Sprintf("hook ingress device %q priority 0", at.in.Name)
	case nftInput:
		hook = "hook input priority filter"
	}
	return fmt.Sprintf("table %s bench {\n%schain drops {\ntype filter %s; policy accept;\n%s}\n}\n", family, more, hook, rules)
}

// nft has nft take a script.
func (b *builder) nft(ctx context.Context, at *site, script string) error {
	_, _, err := runTool(ctx, at.server, strings.NewReader(script), "nft", "-f", "-")
	return err
}

// nftDrop is the rule that drops sources in the set of loadNftSet.
func nftDrop(l *list) string { return choice(l.v6, "ip6", "ip") + " saddr @listed drop\n" }

// loadNftSet loads a list as a set of nft, with rules in a hook.
func loadNftSet(ctx context.Context, at *site, l *list, hook nftHook, rules string) (g loaded, err error) {
	script, remove, err := tempFile("nft", func(w io.Writer) error { return nftSetScript(w, l, hook, at, rules) })
	if err != nil {
		return g, err
	}
	defer remove()
	before := kernelMemory()
	_, took, err := runTool(ctx, at.server, nil, "nft", "-f", script)
	if err != nil {
		return g, err
	}
	return loaded{subject: subject{site: at}, seconds: series{took.Seconds()}}.weighed(before, len(l.prefixes), leastToWeigh), nil
}

// nftSetScript is input for nft.
func nftSetScript(w io.Writer, l *list, hook nftHook, at *site, rules string) error {
	before, after, _ := strings.Cut(hook.script(at, rules, "set listed {\x00}\n"), "\x00")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "%s\ntype %s\n", before, choice(l.v6, "ipv6_addr", "ipv4_addr"))
	if !l.hosts {
		fmt.Fprintln(out, "flags interval")
	}
	if len(l.prefixes) > 0 { // no elements are a mistake
		fmt.Fprint(out, "elements = {")
		var entry []byte
		for _, p := range l.prefixes {
			entry = append(l.appendEntry(entry[:0], p), ",\n"...)
			out.Write(entry)
		}
		fmt.Fprintln(out, "}")
	}
	fmt.Fprint(out, after)
	return out.Flush()
}
