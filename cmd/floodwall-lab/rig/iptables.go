package rig

import (
	"context"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

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
