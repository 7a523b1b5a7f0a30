package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// loadIpset restores an ipset, and has iptables drop what is in it, and then the rest.
func loadIpset(ctx context.Context, b *setBuilder) (g loaded, err error) {
	at, err := b.site()
	if err != nil {
		return g, err
	}
	if g, err = b.list.restoreIpset(ctx, at); err != nil {
		return g, err
	}
	_, err = b.list.restoreRules(ctx, at, "*raw\n-A PREROUTING "+matchListed+" -j DROP\n-A PREROUTING -j DROP\nCOMMIT\n")
	return g, err
}

// matchListed has a rule of iptables be for sources in the set of restoreIpset.
const matchListed = "-m set --match-set listed src"

// restoreIpset restores the list as a set.
func (l *list) restoreIpset(ctx context.Context, at *site) (g loaded, err error) {
	script, remove, err := tempFile("ipset", l.ipsetScript)
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

// restoreRules has iptables of the list's family replace the tables that stand in the rules, and returns how long it took.
func (l *list) restoreRules(ctx context.Context, at *site, rules string) (time.Duration, error) {
	tool := choice(l.v6, "ip6tables-legacy-restore", "iptables-legacy-restore")
	_, took, err := runTool(ctx, at.server, strings.NewReader(rules), tool)
	return took, err
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
		return b.list.loadNft(ctx, at, hook, b.list.nftDrop()+"drop\n")
	}
}

// nftDrop is the rule that drops sources in the set of loadNft.
func (l *list) nftDrop() string { return choice(l.v6, "ip6", "ip") + " saddr @listed drop\n" }

// loadNft loads the list as a set, with rules in a hook.
func (l *list) loadNft(ctx context.Context, at *site, hook nftHook, rules string) (g loaded, err error) {
	script, remove, err := tempFile("nft", func(w io.Writer) error { return l.nftScript(w, hook, at, rules) })
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

// weighed adds what the machine's memory grew by, of which so many entries are the cause.
func (g loaded) weighed(before int64, entries, least int) loaded {
	grown := kernelMemory() - before
	if entries < least || grown <= 0 {
		g.note = "memory: too little to tell from that of the rest of the machine"
		return g
	}
	g.octets, g.roughly = float64(grown), true
	return g
}

// leastToWeigh is from which number of entries on the memory of a set stands out of what else happens on a machine.
const leastToWeigh = 100_000

// nftScript is input for nft.
func (l *list) nftScript(w io.Writer, hook nftHook, at *site, rules string) error {
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
