// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// legacy is iptables-legacy (x_tables) for one family.
type legacy struct {
	family string
	names  string   // the file with the names of its tables
	tools  []string // tools that print its rules, the preferred one first; old systems have only the second
}

var legacies = []legacy{
	{"ip", "ip_tables_names", []string{"iptables-legacy-save", "iptables-save"}},
	{"ip6", "ip6_tables_names", []string{"ip6tables-legacy-save", "ip6tables-save"}},
}

// readLegacy reads the rules of iptables-legacy. It runs the tools only if there is a table, because they would load kernel modules.
func readLegacy(ctx context.Context, h *host, all chains) error {
	var errs []error
	for _, l := range legacies {
		names, err := h.read(netFile(l.names))
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(names) == "" {
			continue
		}
		if err == nil {
			err = l.read(ctx, h, all)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the rules of iptables: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (l legacy) read(ctx context.Context, h *host, all chains) error {
	var text []byte
	var err error
	for _, tool := range l.tools {
		if text, err = h.tool(ctx, tool); !errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	all.addSaved(l.family, text)
	return err
}

// builtin maps the built-in chains of x_tables for incoming packets to their hooks.
var builtin = map[string]hook{"PREROUTING": prerouting, "INPUT": input, "FORWARD": forward}

// tablePriority has the priorities of the tables at a hook, enum nf_ip_hook_priorities.
var tablePriority = map[string]int{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

// addSaved adds the chains in the output of iptables-save. A jump is unconditional if only the target and a comment follow -A and the chain.
func (c chains) addSaved(family string, text []byte) {
	p := place{backend: iptables, family: family}
	for line := range strings.Lines(string(text)) {
		switch name, _, _ := strings.Cut(strings.TrimSpace(line[1:]), " "); line[0] {
		case '*':
			p.table = name
		case ':':
			chain := c.at(p, name)
			if at, is := builtin[name]; is {
				chain.hook, chain.priority = at, tablePriority[p.table]
			}
			chain.nat = p.table == "nat"
		}
	}
	for _, r := range netfilter.ListedByIptables(family, string(text)) {
		p.table = r.Table
		chain := c.at(p, r.Chain)
		chain.rules++
		for _, to := range r.LeadsTo() {
			matches, last := strings.CutSuffix(r.Text, to)
			if c[chainKey{p, to}] == nil || !last {
				continue
			}
			matches = strings.TrimSpace(matches[:len(matches)-len("-j ")])
			onlyComment := strings.HasPrefix(matches, "-m comment --comment ") && strings.Count(matches, " -") == 1
			chain.jumps = append(chain.jumps, jump{to, matches != "" && !onlyComment})
		}
	}
}
