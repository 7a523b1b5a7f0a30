package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
)

// legacy is one family of iptables with x_tables below it.
type legacy struct {
	family string
	names  string   // the file that names its tables
	tools  []string // which print its rules, the best first; old systems have only the second
}

var legacies = []legacy{
	{"ip", "ip_tables_names", []string{"iptables-legacy-save", "iptables-save"}},
	{"ip6", "ip6_tables_names", []string{"ip6tables-legacy-save", "ip6tables-save"}},
}

// readLegacy reads the rules of x_tables. Tools are asked only when there is a table: they would load modules.
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

// builtin are the chains of x_tables that packets come in through.
var builtin = map[string]hook{"PREROUTING": prerouting, "INPUT": input, "FORWARD": forward}

// tablePriority is the order of the tables at a hook, enum nf_ip_hook_priorities.
var tablePriority = map[string]int{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

// addSaved adds the chains in the output of iptables-save.
func (c chains) addSaved(family string, text []byte) {
	p := place{backend: iptables, family: family}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case line[0] == '*':
			p.table = line[1:]
		case line[0] == ':':
			c.addSavedChain(p, words[0][1:])
		case words[0] == "-A" && len(words) > 1:
			c.addSavedRule(p, words[1], words[2:])
		}
	}
}

func (c chains) addSavedChain(p place, name string) {
	chain := c.at(p, name)
	if at, is := builtin[name]; is {
		chain.hook, chain.priority = at, tablePriority[p.table]
	}
	chain.nat = p.table == "nat"
}

// addSavedRule counts a rule. What follows -A and the chain decides whether a jump has a condition: none but the target,
// and a comment.
func (c chains) addSavedRule(p place, name string, words []string) {
	chain := c.at(p, name)
	chain.rules++
	if len(words) < 2 {
		return
	}
	last := words[len(words)-2]
	to := words[len(words)-1]
	if c[chainKey{p, to}] == nil || last != "-j" && last != "-g" {
		return
	}
	matches := strings.Join(words[:len(words)-2], " ")
	onlyComment := strings.HasPrefix(matches, "-m comment --comment ") && strings.Count(matches, " -") == 1
	chain.jumps = append(chain.jumps, jump{to, matches != "" && !onlyComment})
}
