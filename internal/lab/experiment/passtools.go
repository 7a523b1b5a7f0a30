package experiment

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/lab/rig"
)

// chain is where filters decide about packets of a site: to the host, or through it.
func (s *passSite) chain() string {
	if s.inner != nil {
		return "forward"
	}
	return "input"
}

// inside accepts what comes from the host behind, if there is one.
func (s *passSite) inside(rule string) string {
	if s.inner == nil {
		return ""
	}
	return fmt.Sprintf(rule, s.inner.Name)
}

func (s *passSite) nft(ctx context.Context, more, rules string) error {
	script := fmt.Sprintf("table inet pass {\n%schain pass {\ntype filter hook %s priority filter; policy drop;\n%s%s}\n}\n",
		more, s.chain(), rules, s.inside("iifname %q accept\n"))
	_, _, err := rig.RunTool(ctx, s.Server, strings.NewReader(script), "nft", "-f", "-")
	return err
}

// passNft accepts what conntrack knows.
func passNft(ctx context.Context, at *passSite) error {
	return at.nft(ctx, "", "ct state established,related accept\n")
}

// passFlowtable has packets of flows that conntrack knows go past the stack.
func passFlowtable(ctx context.Context, at *passSite) error {
	table := fmt.Sprintf("flowtable fast {\nhook ingress priority filter; devices = { %q, %q };\n}\n", at.In.Name, at.inner.Name)
	err := at.nft(ctx, table, "ct state established flow add @fast\nct state established,related accept\n")
	if err != nil && strings.Contains(err.Error(), "No such file or directory") {
		return &rig.Missing{Reason: "this kernel has no flow tables (CONFIG_NF_FLOW_TABLE)"}
	}
	return err
}

// passIptables is passNft with iptables.
func passIptables(ctx context.Context, at *passSite) error {
	chain := strings.ToUpper(at.chain())
	rules := fmt.Sprintf("*filter\n:%[1]s DROP\n-A %[1]s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n", chain)
	_, err := rig.RestoreRules(ctx, at.Site, false, rules+at.inside("-A "+chain+" -i %s -j ACCEPT\n")+"COMMIT\n")
	return err
}
