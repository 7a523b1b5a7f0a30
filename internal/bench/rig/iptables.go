package bench

import (
	"context"
	"strings"
	"time"
)

// raw has iptables take rules in its table of that name.
func raw(rules string) func(context.Context, *site) error {
	return restoring("*raw\n" + rules + "COMMIT\n")
}

// restoreRules has iptables, or ip6tables for v6, replace the tables that stand in the rules, and returns how long it took.
func restoreRules(ctx context.Context, at *site, v6 bool, rules string) (time.Duration, error) {
	tool := choice(v6, "ip6tables-legacy-restore", "iptables-legacy-restore")
	_, took, err := runTool(ctx, at.server, strings.NewReader(rules), tool)
	return took, err
}

// restoring has iptables take a script.
func restoring(script string) func(context.Context, *site) error {
	return func(ctx context.Context, at *site) error {
		_, _, err := runTool(ctx, at.server, strings.NewReader(script), "iptables-legacy-restore")
		return err
	}
}
