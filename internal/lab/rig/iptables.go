package rig

import (
	"context"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// RestoringRaw has iptables take rules in its table of that name.
func RestoringRaw(rules string) func(context.Context, *Site) error {
	return Restoring("*raw\n" + rules + "COMMIT\n")
}

// RestoreRules has iptables, or ip6tables for v6, replace the tables that stand in the rules, and returns how long it took.
func RestoreRules(ctx context.Context, at *Site, v6 bool, rules string) (time.Duration, error) {
	tool := report.Choice(v6, "ip6tables-legacy-restore", "iptables-legacy-restore")
	_, took, err := RunTool(ctx, at.Server, strings.NewReader(rules), tool)
	return took, err
}

// Restoring has iptables take a script.
func Restoring(script string) func(context.Context, *Site) error {
	return RestoringBy(IptablesLegacy, script)
}

// The forms of iptables: over the kernel's own tables, and over those of nft, which is Debian's default.
const (
	IptablesLegacy = "iptables-legacy"
	IptablesNft    = "iptables-nft"
)

// RestoringBy has a form of iptables take a script.
func RestoringBy(form, script string) func(context.Context, *Site) error {
	return func(ctx context.Context, at *Site) error {
		_, _, err := RunTool(ctx, at.Server, strings.NewReader(script), form+"-restore")
		return err
	}
}
