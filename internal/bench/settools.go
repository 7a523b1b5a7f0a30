package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// loadIpset restores an ipset, and has iptables drop what is in it, and then the rest.
func loadIpset(ctx context.Context, b *setBuilder) (g loaded, err error) {
	script, remove, err := tempFile("ipset", b.list.ipsetScript)
	if err != nil {
		return g, err
	}
	defer remove()
	at, err := b.site()
	if err != nil {
		return g, err
	}
	_, took, err := runTool(ctx, at.server, nil, "ipset", "restore", "-file", script)
	if err != nil {
		return g, err
	}
	rules, restore := "*raw\n-A PREROUTING -m set --match-set listed src -j DROP\n-A PREROUTING -j DROP\nCOMMIT\n", "iptables-legacy-restore"
	if b.list.v6 {
		restore = "ip6tables-legacy-restore"
	}
	if _, _, err := runTool(ctx, at.server, strings.NewReader(rules), restore); err != nil {
		return g, err
	}
	about, _, err := runTool(ctx, at.server, nil, "ipset", "list", "-t", "listed")
	if err != nil {
		return g, err
	}
	return loaded{subject: subject{site: at}, seconds: series{took.Seconds()}, octets: sizeInMemory(about)}, nil
}

// ipsetScript is input for ipset restore.
func (l *list) ipsetScript(w io.Writer) error {
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

// loadNft loads an nft set with rules in a hook that drop what is in it, and then the rest.
func loadNft(hook nftHook) func(context.Context, *setBuilder) (loaded, error) {
	return func(ctx context.Context, b *setBuilder) (g loaded, err error) {
		at, err := b.site()
		if err != nil {
			return g, err
		}
		script, remove, err := tempFile("nft", func(w io.Writer) error { return b.list.nftScript(w, hook, at) })
		if err != nil {
			return g, err
		}
		defer remove()
		before := kernelMemory()
		_, took, err := runTool(ctx, at.server, nil, "nft", "-f", script)
		if err != nil {
			return g, err
		}
		g = loaded{subject: subject{site: at}, seconds: series{took.Seconds()}}
		if len(b.list.prefixes) < leastToWeigh {
			g.note = "memory: too little to tell from that of the rest of the machine"
			return g, nil
		}
		g.octets, g.roughly = float64(kernelMemory()-before), true
		return g, nil
	}
}

// leastToWeigh is from which number of entries on the memory of a set stands out of what else happens on a machine.
const leastToWeigh = 100_000

// nftScript is input for nft.
func (l *list) nftScript(w io.Writer, hook nftHook, at *site) error {
	family := choice(l.v6, "ip6", "ip")
	before, after, _ := strings.Cut(hook.script(at, family+" saddr @listed drop\ndrop\n", "set listed {\x00}\n"), "\x00")
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out, "%s\ntype %s\n", before, choice(l.v6, "ipv6_addr", "ipv4_addr"))
	if !l.hosts {
		fmt.Fprintln(out, "flags interval")
	}
	fmt.Fprint(out, "elements = {")
	var entry []byte
	for _, p := range l.prefixes {
		entry = append(l.appendEntry(entry[:0], p), ",\n"...)
		out.Write(entry)
	}
	fmt.Fprintf(out, "}\n%s", after)
	return out.Flush()
}
