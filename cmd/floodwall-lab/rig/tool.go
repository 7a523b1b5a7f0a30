// SPDX-License-Identifier: Apache-2.0

// This file finds and runs the system's own programs: the tools that Floodwall is compared with, and servers.

package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Missing is the reason why a tool cannot be measured. It causes an empty row, not an error.
type Missing struct{ Reason string }

func (e *Missing) Error() string { return e.Reason }

// debianPackages contains the Debian packages of tools whose package has another name.
var debianPackages = map[string]string{
	"iptables-legacy": "iptables", "iptables-legacy-restore": "iptables", "iptables-nft-restore": "iptables", "iptables-nft-save": "iptables",
	"nft": "nftables", "nginx": "nginx-light",
}

// find finds a program of the system. It also searches the directories of administrators' programs.
func find(name string) (string, error) {
	for _, file := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/sbin", name)} {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	pkg := name
	if p := debianPackages[name]; p != "" {
		pkg = p
	}
	return "", &Missing{fmt.Sprintf("%s is not installed (apt install %s)", name, pkg)}
}

// RunTool runs a program of the system in a host, and returns its output and the duration. If the program fails, the error is a Missing, because the
// kernel may lack a feature.
func RunTool(ctx context.Context, h *lab.Host, stdin io.Reader, name string, args ...string) (string, time.Duration, error) {
	path, err := find(name)
	if err != nil {
		return "", 0, err
	}
	var stdout, stderr bytes.Buffer
	var took time.Duration
	err = h.Do(func() error { // a child process belongs to the namespace of the thread that starts it
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
		start := time.Now()
		defer func() { took = time.Since(start) }()
		return cmd.Run()
	})
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	var refused *exec.ExitError
	if errors.As(err, &refused) {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return "", 0, &Missing{fmt.Sprintf("%s: %v: %s", name, err, line)}
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", name, err)
	}
	return stdout.String(), took, nil
}

// Tolerate returns the reason of a Missing. It returns every other error unchanged.
func Tolerate(err error) (reason string, _ error) {
	var missing *Missing
	if errors.As(err, &missing) {
		return missing.Reason, nil
	}
	return "", err
}

// RawRules returns input for iptables-restore: rules for the raw table.
func RawRules(rules string) string { return "*raw\n" + rules + "COMMIT\n" }

// RestoreRules restores rules with iptables, or with ip6tables if v6 is true, and returns the duration. It replaces the tables that the rules name.
func RestoreRules(ctx context.Context, at *Site, v6 bool, rules string) (time.Duration, error) {
	tool := report.Choice(v6, "ip6tables-legacy-restore", "iptables-legacy-restore")
	_, took, err := RunTool(ctx, at.Server, strings.NewReader(rules), tool)
	return took, err
}

// The forms of iptables: legacy, with the kernel's own tables, and nft, which is Debian's default.
const (
	IptablesLegacy = "iptables-legacy"
	IptablesNft    = "iptables-nft"
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

// TempFile makes a file with this name in a separate directory.
func TempFile(name string, write func(io.Writer) error) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, name)
	if err := report.WriteFile(path, write); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}
